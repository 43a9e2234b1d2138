"""What the rows of runners have in common: where their credential stands, and what they say of themselves."""

from collections.abc import Mapping
from typing import Any

from graph.rules.machines import is_token
from rest_v3.bodies import Known
from rest_v3.endpoint import Endpoint, Graph, Request
from rest_v3.errors import Refusal
from rest_v3.operations import Operations
from rest_v3.route import Route
from rest_v3.sending import Sender

TOKEN = "token"  # noqa: S105 - what the parameter is called
TOKEN_HEADER = b"build-token"
INFO = "info"
"""An object of texts that runners send with most calls: `{"name": …, "version": …}`, or `info[name]=…` in a form."""


class RunnerEndpoint(Endpoint):
    """An endpoint whose caller is a runner: `token` (a runner's or a build's), or a build's in the header BUILD-TOKEN.

    A user's token is nobody's here (DECISIONS 3).
    """

    token_name = TOKEN

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        self._known = Known(self._known.single | {INFO}, self._known.many)
        # Nothing that a guard could ask is open to runners; what they send says nothing of anything that they may not see.
        self._guard = None

    def credential_of(self, request: Request, sent: dict[str, Any]) -> str | None:
        if TOKEN in self._by_name:
            # The operation itself is given it.
            return None
        token = sent.pop(TOKEN, None) or request.headers.get(TOKEN_HEADER, b"").decode("latin-1")
        return token if isinstance(token, str) and is_token(token) else None

    def _read(self, request: Request, sent: Mapping[str, Any]) -> tuple[dict[str, Any], Refusal | None]:
        info = sent.get(INFO)
        if isinstance(info, dict):
            sent = {**sent, **{f"{INFO}[{name}]": value for name, value in info.items()}}
        return super()._read(request, sent)


class RunnerSender(RunnerEndpoint, Sender):
    """The same for a row whose answer is a file."""

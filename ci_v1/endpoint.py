"""What the rows for runners share: the credential and the runner's description of itself."""

from collections.abc import Mapping
from typing import Any

from graph.rules.runners.runner_tokens import is_token
from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor
from rest_v3.endpoints.file_downloads import FileDownloadEndpoint
from rest_v3.endpoints.messages import RestRequest
from rest_v3.errors import ErrorResponse
from rest_v3.operations import OperationRegistry
from rest_v3.requests.bodies import AcceptedNames
from rest_v3.route import Route

TOKEN_PARAMETER = "token"  # noqa: S105 - what the parameter is called
TOKEN_HEADER = b"build-token"
INFO_PARAMETER = "info"
"""An object of strings that runners send with most calls: `{"name": …, "version": …}`, or `info[name]=…` in a form."""


class RunnerEndpoint(Endpoint):
    """An endpoint for runners. The credential is `token` (of a runner or a build), or a build's token in the header BUILD-TOKEN.

    The token of a user is not accepted (docs/decisions.md 3).
    """

    token_name = TOKEN_PARAMETER

    def __init__(self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        self._accepted_names = AcceptedNames(self._accepted_names.single | {INFO_PARAMETER}, self._accepted_names.multiple)
        # Runners may call no guard, and a validation error of their parameters reveals nothing that they may not see.
        self._guard = None

    def credential_of(self, request: RestRequest, sent: dict[str, Any]) -> str | None:
        if TOKEN_PARAMETER in self._parameters:
            # The operation also takes the token as a variable.
            return None
        token = sent.pop(TOKEN_PARAMETER, None) or request.headers.get(TOKEN_HEADER, b"").decode("latin-1")
        return token if isinstance(token, str) and is_token(token) else None

    def _read_variables(self, request: RestRequest, sent: Mapping[str, Any]) -> tuple[dict[str, Any], ErrorResponse | None]:
        info = sent.get(INFO_PARAMETER)
        if isinstance(info, dict):
            sent = {**sent, **{f"{INFO_PARAMETER}[{name}]": value for name, value in info.items()}}
        return super()._read_variables(request, sent)


class RunnerFileDownloadEndpoint(RunnerEndpoint, FileDownloadEndpoint):
    """A runner's endpoint that responds with a file."""

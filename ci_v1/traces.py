"""PUT /builds/:id: a runner sends the whole trace again and again, of which what is new is appended."""

from collections.abc import Iterator, Mapping
from typing import Any

from ci_v1.endpoint import RunnerEndpoint
from rest_v3.bodies import Known
from rest_v3.endpoint import Graph, Request, Response
from rest_v3.errors import Refusal, from_problem, from_user_errors
from rest_v3.operations import Operation, Operations
from rest_v3.route import Route
from rest_v3.values import WrongValueError

TRACE = "trace"
LARGEST_BODY = 2**24
"""Bytes. Runners of the time cut a trace at 4 MiB, which JSON's escapes may lengthen."""
APPENDED_AT_ONCE = 2**19
"""Bytes."""
UNREADABLE = "\ufffd"
"""What a runner sends for a byte that is no UTF-8: at the end also for the first bytes of a letter whose rest is still to come."""


class TraceEndpoint(RunnerEndpoint):
    """The state is said last, since a build that has ended takes no more trace."""

    largest_body = LARGEST_BODY

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        self._known = Known(self._known.single | {TRACE}, self._known.many)
        self._look = self._operation(operations, "BuildTrace")
        self._append = self._operation(operations, "AppendTrace")

    def _read(self, request: Request, sent: Mapping[str, Any]) -> tuple[dict[str, Any], Refusal | None]:
        variables, wrong = super()._read(request, sent)
        trace = sent.get(TRACE)
        if trace is not None and not isinstance(trace, str):
            return variables, wrong or Refusal(400, {"message": {TRACE: [str(WrongValueError("is invalid"))]}})
        if trace:
            variables[TRACE] = trace
        return variables, wrong

    async def _single(self, request: Request, variables: dict[str, Any], credential: str | None) -> Response:
        trace = variables.pop(TRACE, "")
        if trace:
            refused = await self._append_new(request, variables["id"], trace, credential, final="state" in variables)
            if refused is not None:
                return self._refuse(refused)
        return await super()._single(request, variables, credential)

    async def _append_new(self, request: Request, build_id: int, trace: str, credential: str | None, *, final: bool) -> Refusal | None:
        outcome = await self._run(request, self._look, {"id": build_id}, credential)
        refused = self._refused(self._look, outcome)
        if refused is not None:
            return refused
        offset = int(outcome.data["updateBuild"]["build"]["trace"]["size"])
        for piece in news(trace if final else trace.rstrip(UNREADABLE), offset):
            variables = {"id": build_id, "text": piece.decode(errors="ignore"), "offset": offset}
            refused = self._refused(self._append, await self._run(request, self._append, variables, credential))
            if refused is not None:
                return refused
            offset += len(piece)
        return None

    def _refused(self, operation: Operation, outcome: Any) -> Refusal | None:
        if outcome.errors:
            return from_problem(self.route, outcome.errors[0])
        (payload,) = outcome.data.values()
        return from_user_errors(self.route, payload["userErrors"], operation.fields) if payload["userErrors"] else None


def news(trace: str, known: int) -> Iterator[bytes]:
    """What a trace has behind the first `known` bytes (in UTF-8), in pieces of whole letters. No database keeps a NUL.

    >>> list(news("Größe", 3))
    [b'\\xc3\\x9fe']
    """
    data = trace.replace("\0", UNREADABLE).encode()
    start = _letter_at(data, known)
    while start < len(data):
        end = _letter_at(data, start + APPENDED_AT_ONCE)
        yield data[start:end]
        start = end


def _letter_at(data: bytes, place: int) -> int:
    """Where the first letter begins at this place or behind it."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return min(place, len(data))

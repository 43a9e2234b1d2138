"""PUT /builds/:id: a runner sends the whole trace again and again, of which what is new is appended."""

from collections.abc import Mapping
from typing import Any

from ci_v1.artifacts import Artifacts
from ci_v1.endpoint import RunnerEndpoint
from ci_v1.trace_body import TRACE, TraceSpool, read_trace_body
from graph.rules.machines import is_runner_token
from rest_v3.bodies import Known, MalformedError, pairs_of
from rest_v3.endpoint import Graph, Request, Response
from rest_v3.errors import Refusal, from_problem, from_user_errors, refusal
from rest_v3.operations import Operation, Operations
from rest_v3.receiving import DISK_FULL, Gone
from rest_v3.route import Route
from rest_v3.values import WrongValueError

APPENDED_AT_ONCE = 2**19
"""Bytes."""


class TraceEndpoint(RunnerEndpoint):
    """The state is said last, since a build that has ended takes no more trace.

    The token of a runner counts here, and that of a build does not: scripts know the latter.
    """

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str, artifacts: Artifacts) -> None:
        super().__init__(route, operations, graph, base_url)
        self._known = Known(self._known.single | {TRACE}, self._known.many)
        self._artifacts = artifacts
        self._look = self._operation(operations, "BuildTrace")
        self._append = self._operation(operations, "AppendTrace")

    def credential_of(self, request: Request, sent: dict[str, Any]) -> str | None:
        token = super().credential_of(request, sent)
        return token if is_runner_token(token) else None

    async def answer(self, request: Request) -> Response | None:
        spool = TraceSpool(self._artifacts.trace_limit)
        try:
            return await self._received(request, spool)
        except Gone:
            return None
        except MalformedError as error:
            return self._refuse(error.answer)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return self._refuse(refusal(507))
        finally:
            spool.close()

    async def _received(self, request: Request, spool: TraceSpool) -> Response:
        headers = request.headers
        sent = self._known.gather(pairs_of(request.query))
        spool.write(str(sent.pop(TRACE, "")))
        declared, content_type = headers.get(b"content-length"), headers.get(b"content-type", b"")
        sent.update(await read_trace_body(request.receive, declared, content_type, self._known, spool))
        credential = self.credential_of(request, sent)
        variables, wrong = self._read(request, sent)
        if wrong is not None:
            return self._refuse(wrong)
        if spool.size:
            refused = await self._append_new(request, variables["id"], spool, credential, final="state" in variables)
            if refused is not None:
                return self._refuse(refused)
        return await self._single(request, variables, credential)

    def _read(self, request: Request, sent: Mapping[str, Any]) -> tuple[dict[str, Any], Refusal | None]:
        variables, wrong = super()._read(request, sent)
        # A string is in the spool by now.
        if wrong is None and not isinstance(sent.get(TRACE) or "", str):
            wrong = Refusal(400, {"message": {TRACE: [str(WrongValueError("is invalid"))]}})
        return variables, wrong

    async def _append_new(
        self, request: Request, build_id: int, spool: TraceSpool, credential: str | None, *, final: bool
    ) -> Refusal | None:
        outcome = await self._run(request, self._look, {"id": build_id}, credential)
        refused = self._refused(self._look, outcome)
        if refused is not None:
            return refused
        offset = int(outcome.data["updateBuild"]["build"]["trace"]["size"])
        async for piece in spool.pieces(offset, final=final, size=APPENDED_AT_ONCE):
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

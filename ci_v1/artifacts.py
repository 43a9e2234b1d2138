"""POST /builds/:id/artifacts: the file of a form goes on to the object store while it comes, and is seen once all of it is there."""

from collections.abc import AsyncIterable
from typing import Any, Protocol

from ci_v1.endpoint import RunnerEndpoint
from ci_v1.routes import DETAILS
from graph.errors import ForgeError
from rest_v3.bodies import MalformedError, pairs_of
from rest_v3.endpoint import Graph, Request, Response
from rest_v3.errors import Refusal, from_user_errors, not_given, refusal
from rest_v3.operations import Operations
from rest_v3.receiving import DISK_FULL, FileForm, Gone
from rest_v3.route import Route

FILE = "file"
PROXY = b"gitlab-workhorse"
NO_FILE = refusal(400, not_given("Missing artifacts file!"))


class Artifacts(Protocol):
    """What is asked of graph.artifact_access.ArtifactAccess. Both methods raise what graph.errors draws."""

    @property
    def trace_limit(self) -> int: ...

    async def admit(self, ticket: str, request_id: str) -> Any: ...
    async def keep(self, permit: Any, pieces: AsyncIterable[bytes], request_id: str) -> Any: ...


class ProxyEndpoint(RunnerEndpoint):
    """An endpoint for the proxy that stood before services of the time, which says so in a header."""

    async def answer(self, request: Request) -> Response | None:
        if PROXY not in request.headers:
            return self._refuse(refusal(403, "403 Forbidden - Request should be executed via GitLab Workhorse"))
        return await super().answer(request)


class ArtifactsReceiver(RunnerEndpoint):
    """The row's operation asks for leave to send the file, before any of it is read; another one says what the answer is."""

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str, artifacts: Artifacts) -> None:
        super().__init__(route, operations, graph, base_url)
        self._artifacts = artifacts
        self._details = RunnerEndpoint(DETAILS, operations, graph, base_url)

    async def answer(self, request: Request) -> Response | None:
        try:
            return await self._received(request)
        except Gone:
            return None
        except MalformedError as error:
            return self._refuse(error.answer)
        except ForgeError as error:
            return self._refuse(self._refusal_of(error))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return self._refuse(refusal(507))

    async def _received(self, request: Request) -> Response:
        content_type = request.headers.get(b"content-type", b"")
        form: FileForm | None = None
        pairs = pairs_of(request.query)
        if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
            form = FileForm(content_type, FILE, request.receive)
            await form.read_to_file()
            pairs += form.pairs
        sent = self._known.gather(pairs)
        credential = self.credential_of(request, sent)
        variables, wrong = self._read(request, {**sent, "filename": form.file_name if form is not None else None})
        if wrong is not None:
            return self._refuse(wrong)
        outcome = await self._run(request, self.operation, variables, credential)
        refused = self._outcomes.refusal(outcome)
        if refused is not None or form is None or form.file_name is None:
            return self._refuse(refused or NO_FILE)
        ticket = outcome.data["createArtifactUpload"]["upload"]["url"].rpartition("/")[2]
        permit = await self._artifacts.admit(ticket, request.request_id)
        await self._artifacts.keep(permit, form.pieces(), request.request_id)
        return await self._details._single(request, {"token": credential}, credential)

    def _refusal_of(self, error: ForgeError) -> Refusal:
        told = [{"field": None, "message": error.message, "code": str(error.code)}]
        return from_user_errors(self.route, told, {})

"""Imports a project and its contents, all but notes and builds, which other modules do."""

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from forgefront.importing import content_mapping, entity_mapping
from forgefront.importing.account_import import AccountImporter
from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity
from forgefront.importing.import_run import CollectionState, ImportRun
from forgefront.importing.import_target import BatchWriter
from forgefront.importing.repository_mirrors import CloneFailed, MirrorSource
from forgefront.importing.source_errors import SourceSkipped
from forgefront.importing.source_routes import ApiVersion
from forgefront.importing.upload_import import UploadImporter
from graph.errors import ForgeError

MAX_MERGE_REQUEST_COMMITS = 1_000
NOTEABLE_TYPES = {"Issue": "issues", "MergeRequest": "merge requests"}


@dataclass
class ProjectWork:
    """A project that is imported. `changed` has, by kind, the ids and iids of what needs its notes read; `marks` are stored when all of
    it was written; `commit_oids` are commits whose statuses may have changed."""

    id: str
    path: str
    web_url: str
    ssh_url: str
    runners_token: str | None = field(default=None, repr=False)
    changed: dict[str, "array[int]"] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    confidential: set[int] = field(default_factory=set)
    """Ids of issues whose notes and files are not read, because more people could see them here."""
    commit_oids: list[str] = field(default_factory=list)
    pipelines: set[int] = field(default_factory=set)
    """Ids of the pipelines of builds, where the source shows them."""
    wiki_changed_at: str | None = None
    """When there was activity in the project; None if it has no wiki."""
    has_repository: bool = False
    has_new_refs: bool = False

    def add_changed(self, kind: str, entity: SourceEntity) -> None:
        self.changed.setdefault(kind, array("q")).extend((entity.id or 0, entity.integer("iid") or 0))

    def list_changed(self, kind: str) -> list[tuple[int, int]]:
        numbers = self.changed.get(kind, array("q"))
        left_out = self.confidential if kind == "issues" else ()
        return [pair for pair in zip(numbers[::2], numbers[1::2], strict=True) if pair[0] not in left_out]

    def mark_name(self, collection: str) -> str:
        return f"project/{self.id}/{collection}"


@dataclass
class ProjectImporter:
    """Imports one project after the other; `accounts` imports authors that are not known yet."""

    run: ImportRun
    accounts: AccountImporter
    uploads: UploadImporter

    async def import_contents(self, work: ProjectWork) -> None:
        """Everything except notes, builds and what belongs to commits."""
        await self._import_members(work)
        for kind, route, mapper in COLLECTIONS:
            await self._import_collection(work, kind, route, mapper)
        await self._import_repository(work)
        await self._import_collection(work, *RELEASES)
        await self._find_new_notes(work)
        await self._import_issues(work)
        await self._import_merge_requests(work)
        await self._import_snippets(work)

    def mark(self, work: ProjectWork, collection: str) -> str:
        return self.run.target.marks.get(work.mark_name(collection), "")

    async def _import_members(self, work: ProjectWork) -> None:
        writer = self._collection_writer(work, "project members")
        await self.accounts.import_members("project members", self.run.source.path("members", project=work.id), work.id, writer)
        await writer.flush()

    async def _import_collection(
        self, work: ProjectWork, kind: str, route: str, mapper: Callable[[str, SourceEntity], Item | None]
    ) -> None:
        path = self.run.source.path(route, project=work.id)

        def map_one(entity: SourceEntity) -> Item | None:
            item = mapper(work.id, entity)
            if item is not None and kind == "hooks":
                item["enabled"] = self.run.options.enables_hooks
            return item

        await self._collection_writer(work, kind).write_all(self.run.read_mapped(kind, path, map_one))

    def _collection_writer(self, work: ProjectWork, kind: str) -> BatchWriter:
        """The writer of a collection that is read whole in every run, and written only where it changed."""
        return BatchWriter(self.run.target, kind, work.mark_name(kind))

    async def _import_repository(self, work: ProjectWork) -> None:
        """Mirrors the repository, and copies the mirror if its refs are not those of the last run."""
        count, where = self.run.report.count("repositories"), f"{work.path}.git"
        count.read += 1
        source = self.find_repository(work)
        try:
            digest = await self.run.mirrors.update(int(work.id), source)
            work.has_repository = True
            if digest == self.mark(work, "refs"):
                count.unchanged += 1
                return
            work.has_new_refs = True
            path = self.run.mirrors.path_of(int(work.id))
            repositories, import_id = self.run.repositories, self.run.target.import_id
            result = await self.run.target.call(lambda: repositories.import_repository(import_id, work.id, path), is_bounded=False)
        except (CloneFailed, ForgeError, OSError) as error:
            self.run.report.skip("repositories", where, str(error) or type(error).__name__)
            return
        self.run.target.record_result("repositories", where, result)
        if str(result.outcome) != "SKIPPED":
            await self.run.target.set_mark(work.mark_name("refs"), digest)
        work.commit_oids += [commit.oid for commit in await asyncio.to_thread(self.run.mirrors.list_heads, int(work.id))]

    def find_repository(self, work: ProjectWork) -> MirrorSource:
        """Where the repository of the project is cloned from."""
        if self.run.options.uses_ssh:
            return MirrorSource(work.ssh_url)
        client = self.run.source.client
        # Some servers accept the token as a password; others accept only the CI token of the project.
        credentials = [f"{self.run.source.user['username']}:{client.token}", f"oauth2:{client.token}"]
        if work.runners_token:
            credentials.append(f"gitlab-ci-token:{work.runners_token}")
        return MirrorSource(f"{client.url}/{work.path}.git", tuple(credentials))

    async def _find_new_notes(self, work: ProjectWork) -> None:
        """Issues and merge requests with notes since the last run: not every server changes `updated_at` for a note."""
        if self.run.source.api is not ApiVersion.V3:
            return
        path, mark, newest = self.run.source.path("events", project=work.id), self.mark(work, "events"), ""
        try:
            async for page in self.run.source.client.pages(path):
                for fields in page.entries:
                    event = SourceEntity(fields)
                    created_at = event.time("created_at") or ""
                    newest = max(newest, created_at)
                    note = event.entity("note")
                    kind = NOTEABLE_TYPES.get(note.text("noteable_type") or "")
                    if kind and mark and created_at >= mark and (noteable_id := note.integer("noteable_id")):
                        work.changed.setdefault(kind, array("q")).extend((noteable_id, 0))
                if not mark or (page.entries and (SourceEntity(page.entries[-1]).time("created_at") or "") < mark):
                    break
        except SourceSkipped as error:
            self.run.report.record_omission("notes", path, error.reason)
            return
        if newest:
            work.marks[work.mark_name("events")] = self.run.mark_after(newest)

    async def _import_issues(self, work: ProjectWork) -> None:
        path, state = self.run.source.path("issues", project=work.id), CollectionState()
        mark, newest = self.mark(work, "issues"), ""
        writer = BatchWriter(self.run.target, "issues")
        async for issue in self.run.read("issues", path, params=self._list_params(mark), state=state):
            updated_at = issue.time("updated_at") or ""
            newest = max(newest, updated_at)
            is_confidential = content_mapping.is_confidential(issue)
            if is_confidential and issue.id is not None:
                work.confidential.add(issue.id)
            if mark and updated_at < mark:
                self.run.report.count("issues").unchanged += 1
                continue
            await self.accounts.ensure_users([issue.entity("author"), issue.entity("assignee")])
            where = f"{path}/{issue.id or '?'}"
            try:
                await writer.add(where, content_mapping.map_issue(work.id, issue))
                work.add_changed("issues", issue)
            except InvalidEntity as error:
                self.run.report.skip("issues", where, str(error))
            if not is_confidential:
                await self.uploads.import_links(work.id, work.path, issue.text("description"), issue)
        await writer.flush()
        if state.is_complete and not writer.retry and newest:
            work.marks[work.mark_name("issues")] = self.run.mark_after(newest)

    def _list_params(self, mark: str) -> dict[str, Any]:
        """v4 lists what changed; servers of v3 ignore the parameters or follow the interface document, so that the newest come first."""
        if self.run.source.api is ApiVersion.V4:
            return {"scope": "all", **({"updated_after": mark} if mark else {})}
        return {}

    async def _import_merge_requests(self, work: ProjectWork) -> None:
        path, state = self.run.source.path("merge_requests", project=work.id), CollectionState()
        mark, newest = self.mark(work, "merge requests"), ""
        writer = BatchWriter(self.run.target, "merge requests")
        # The document's list has no times. Its order is by them, so that the first that did not change ends the list.
        params = {**self._list_params(mark), "order_by": "updated_at", "sort": "desc"}
        async for request in self.run.read("merge requests", path, params=params, state=state):
            where = f"{path}/{request.id or '?'}"
            has_times = request.has("updated_at")
            try:
                if not has_times:
                    request = await self._read_merge_request_times(work, request)
                updated_at = request.time("updated_at") or ""
                newest = max(newest, updated_at)
                if mark and updated_at < mark:
                    if not has_times:
                        break
                    self.run.report.count("merge requests").unchanged += 1
                    continue
                await self.accounts.ensure_users([request.entity("author"), request.entity("assignee")])
                oids = await self._read_commit_oids(work, request)
                await writer.add(where, content_mapping.map_merge_request(work.id, request, oids))
                work.add_changed("merge requests", request)
                work.commit_oids += oids[:1]
            except InvalidEntity as error:
                self.run.report.skip("merge requests", where, str(error))
            except SourceSkipped as error:
                self.run.report.skip("merge requests", where, error.reason)
                state.has_failed = True
            await self.uploads.import_links(work.id, work.path, request.text("description"), request)
        await writer.flush()
        if state.is_complete and not writer.retry and newest:
            work.marks[work.mark_name("merge requests")] = self.run.mark_after(newest)

    def _merge_request_path(self, work: ProjectWork, route: str, request: SourceEntity) -> str:
        number = request.id if self.run.source.api is ApiVersion.V3 else request.integer("iid")
        return self.run.source.path(route, project=work.id, merge_request=number)

    async def _read_merge_request_times(self, work: ProjectWork, request: SourceEntity) -> SourceEntity:
        changes = await self.run.source.client.get_object(self._merge_request_path(work, "merge_request_changes", request))
        times = {name: changes.get(name) for name in ("created_at", "updated_at")}
        return SourceEntity({**request.fields, **times})

    async def _read_commit_oids(self, work: ProjectWork, request: SourceEntity) -> list[str]:
        """The commits of a merge request, newest first; an open one's are compared again here."""
        path, oids = self._merge_request_path(work, "merge_request_commits", request), list[str]()
        if request.text("state") in ("opened", "reopened"):
            return oids
        try:
            async for commit in self.run.source.client.read_all(path):
                if isinstance(oid := commit.get("id"), str):
                    oids.append(oid)
                if len(oids) >= MAX_MERGE_REQUEST_COMMITS:
                    break
        except SourceSkipped as error:
            self.run.report.record_omission("merge requests", path, error.reason)
        return oids

    async def _import_snippets(self, work: ProjectWork) -> None:
        path, state = self.run.source.path("snippets", project=work.id), CollectionState()
        mark, newest = self.mark(work, "snippets"), ""
        writer = BatchWriter(self.run.target, "snippets")
        async for snippet in self.run.read("snippets", path, state=state):
            updated_at = snippet.time("updated_at") or ""
            newest = max(newest, updated_at)
            work.add_changed("snippets", snippet)
            if mark and updated_at < mark:
                self.run.report.count("snippets").unchanged += 1
                continue
            where = f"{path}/{snippet.id or '?'}"
            if snippet.visibility() is None:
                self.run.report.note("v3 does not show the visibility of snippets: they are private here")
            await self.accounts.ensure_users([snippet.entity("author")])
            try:
                content_path = self.run.source.path("snippet_content", project=work.id, snippet=snippet.id)
                content = (await self.run.source.client.get_text(content_path)).decode("utf-8", "replace").replace("\0", "")
                await writer.add(where, content_mapping.map_snippet(work.id, snippet, content))
            except InvalidEntity as error:
                self.run.report.skip("snippets", where, str(error))
            except SourceSkipped as error:
                self.run.report.skip("snippets", where, error.reason)
                state.has_failed = True
        await writer.flush()
        if state.is_complete and not writer.retry and newest:
            work.marks[work.mark_name("snippets")] = self.run.mark_after(newest)


def _map_tag(project_id: str, tag: SourceEntity) -> Item | None:
    return entity_mapping.map_release(project_id, tag) if tag.entity("release").fields else None


def _map_branch(project_id: str, branch: SourceEntity) -> Item | None:
    # v3 lists all branches, v4 the protected ones alone.
    is_protected = branch.boolean("protected") if branch.has("protected") else True
    return entity_mapping.map_protected_branch(project_id, branch) if is_protected else None


ProjectCollection = tuple[str, str, Callable[[str, SourceEntity], Item | None]]
"""Kind, route, and mapping of an entry of the project with this id."""
COLLECTIONS: tuple[ProjectCollection, ...] = (
    ("labels", "labels", entity_mapping.map_label),
    ("milestones", "milestones", entity_mapping.map_milestone),
    ("hooks", "project_hooks", entity_mapping.map_hook),
    ("deploy keys", "deploy_keys", partial(entity_mapping.map_public_key, "projectId")),
    ("variables", "variables", entity_mapping.map_variable),
    ("triggers", "triggers", entity_mapping.map_trigger),
    ("protected branches", "branches", _map_branch),
)
"""Small collections, which are read whole in every run."""
RELEASES: ProjectCollection = ("releases", "tags", _map_tag)
"""They are written after the repository, since each belongs to a tag of it."""

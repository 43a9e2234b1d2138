"""Counts what an import would take, and finds what it could not take, without writing anything."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from forgefront.importing import content_mapping, entity_mapping
from forgefront.importing.account_import import (
    MEMBER_MAPPERS,
    NO_TOKENS,
    USER_COLLECTIONS,
    report_end_of_member,
    report_parts_of_user,
    report_place_of_group,
)
from forgefront.importing.content_mapping import FINISHED_STATUSES
from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity
from forgefront.importing.import_run import CollectionReader, CollectionState, ImportOptions, for_each
from forgefront.importing.project_import import COLLECTIONS, RELEASES, ProjectCollection
from forgefront.importing.source_errors import SourceSkipped
from forgefront.importing.source_routes import ApiVersion

CONFIDENTIAL = "it is confidential: everybody who sees the project would see it here"
NOT_COUNTED = (
    "notes, traces, attached files, statuses and comments of commits are not counted: they are listed by their parents alone. Nothing is"
    " cloned, so that pages of wikis and LFS objects are not looked for, and names that are taken are found by the import alone"
)
ONLY_WHOLE = "users with their addresses and keys are not counted: the import of a group or a project takes those who are named in it"
NOT_REQUESTED = "its merge when its builds succeed: merge it by hand, or request it again"

OPEN_STATES = ("OPENED", "REOPENED")
SCOPED_KINDS = ("issues", "merge requests")
"""Kinds of which v4, without the parameter `scope`, lists those of the token's user."""


@dataclass
class ImportRehearsal(CollectionReader):
    """Reads and maps all that lists show, and nothing that takes a request for each issue, merge request, build or commit."""

    options: ImportOptions

    async def count_all(self) -> None:
        """Counts everything that the options select. Raises SourceUnreachable, SourceUnauthorized."""
        projects, groups = await self._read_projects()
        if self.options.is_whole:
            await self._count_settings()
            await self._count_users()
            await self._count_all_groups()
        else:
            self.report.note(ONLY_WHOLE)
            for group in {self.options.group} if self.options.group is not None else map(str, sorted(groups)):
                await self._count_group(SourceEntity(await self.source.client.get_object(self.source.path("group", group=group))))
        if self.options.is_whole and self.source.is_admin:
            await self._count_collection("hooks", self.source.path("system_hooks"), partial(entity_mapping.map_hook, None))
            await self._count_runners()
        self.progress.expect("projects: contents", len(projects))
        await for_each(projects, self._count_project, parallel=self.parallel)
        self.report.note(NOT_COUNTED)
        self.report.is_complete = True

    async def _count_collection(self, kind: str, path: str, map_entity: Callable[[SourceEntity], Item | None]) -> None:
        params = {"scope": "all"} if kind in SCOPED_KINDS and self.source.api is ApiVersion.V4 else None
        async for _ in self.read_mapped(kind, path, map_entity, params=params):
            pass

    async def _count_settings(self) -> None:
        if not self.source.is_admin:
            return
        path = self.source.path("settings")
        try:
            await self.source.client.get_object(path)
        except SourceSkipped as error:
            self.report.skip("settings", path, error.reason)
        else:
            self.report.count("settings").read += 1

    async def _count_users(self) -> None:
        if not await self.source.shows_tokens():
            self.report.note(NO_TOKENS)
        users = list[SourceEntity]()

        def map_user(user: SourceEntity) -> Item:
            report_parts_of_user(self.report, user)
            users.append(SourceEntity({"id": user.id, "email": user.text("email")}))
            return entity_mapping.map_user(user)

        await self._count_collection("users", self.source.path("users"), map_user)
        if not self.source.is_admin:
            return

        async def count_belongings(user: SourceEntity) -> None:
            if user.id is not None:
                for kind, route, map_entity in USER_COLLECTIONS:
                    await self._count_collection(kind, self.source.path(route, user=user.id), partial(map_entity, user))

        await for_each(users, count_belongings, parallel=self.parallel)

    async def _count_all_groups(self) -> None:
        groups = [group async for group in self.read("groups", self.source.path("groups"), state=CollectionState())]
        self.report.count("groups").read -= len(groups)
        await for_each(groups, self._count_group, parallel=self.parallel)

    async def _count_group(self, group: SourceEntity) -> None:
        self.report.count("groups").read += 1
        where = self.source.path("group", group=group.id)
        report_place_of_group(self.report, where, group)
        try:
            entity_mapping.map_group(group, SourceEntity(None))
        except InvalidEntity as error:
            self.report.skip("groups", where, str(error))
            return
        await self._count_members("group members", self.source.path("group_members", group=group.id), str(group.id))

    async def _count_members(self, kind: str, path: str, parent_id: str) -> None:
        def map_member(member: SourceEntity) -> Item:
            report_end_of_member(self.report, kind, f"{path}/{member.id}", member)
            return MEMBER_MAPPERS[kind](parent_id, member)

        await self._count_collection(kind, path, map_member)

    async def _count_runners(self) -> None:
        async for listed in self.read("runners", self.source.path("runners"), state=CollectionState()):
            path = self.source.path("runner", runner=listed.id)
            try:
                entity_mapping.map_runner(SourceEntity(await self.source.client.get_object(path)))
            except (SourceSkipped, InvalidEntity) as error:
                self.report.skip("runners", path, error.reason)

    async def _read_projects(self) -> tuple[list[SourceEntity], set[int]]:
        """The projects that can be taken, by id and path, and the ids of their groups."""
        projects, groups = list[SourceEntity](), set[int]()

        async def read_one(listed: SourceEntity) -> None:
            path = self.source.path("project", project=listed.id)
            try:
                project = SourceEntity(await self.source.client.get_object(path))
                entity_mapping.map_project(project)
            except (SourceSkipped, InvalidEntity) as error:
                self.report.skip("projects", path, error.reason)
                return
            if reason := entity_mapping.describe_members_only_features(project):
                self.report.record_omission("projects", path, reason)
            projects.append(SourceEntity({"id": project.id, "path": project.text("path_with_namespace")}))
            namespace = project.entity("namespace")
            if namespace.id is not None and (not project.entity("owner").fields or namespace.text("kind") == "group"):
                groups.add(namespace.id)

        if self.options.project is not None:
            self.report.count("projects").read += 1
            await read_one(SourceEntity(await self.source.client.get_object(self.source.path("project", project=self.options.project))))
            return projects, groups
        async for project in self.read_projects(self.options):
            await read_one(project)
        return projects, groups

    async def _count_project(self, project: SourceEntity) -> None:
        project_id = str(project.id)
        self.report.count("repositories").read += 1
        await self._count_members("project members", self.source.path("members", project=project_id), project_id)
        for kind, route, mapper in (*COLLECTIONS, RELEASES, *CONTENTS):
            await self._count_collection(kind, self.source.path(route, project=project_id), partial(mapper, project_id))
        await self._count_merge_requests(project_id)
        await self._count_builds(project_id, project.text("path") or "")
        self.progress.advance("projects: contents", is_phase=True)

    async def _count_merge_requests(self, project_id: str) -> None:
        path = self.source.path("merge_requests", project=project_id)

        def map_request(request: SourceEntity) -> Item | None:
            if not request.has("updated_at"):
                # The interface document's list has no times; each merge request shows its own.
                return None
            item = content_mapping.map_merge_request(project_id, request)
            if item["mergeWhenBuildSucceeds"] and item["state"] in OPEN_STATES:
                self.report.record_omission("merge requests", f"{path}/{request.id}", NOT_REQUESTED)
            return item

        await self._count_collection("merge requests", path, map_request)

    async def _count_builds(self, project_id: str, project_path: str) -> None:
        unfinished = 0

        def map_build(build: SourceEntity) -> Item:
            nonlocal unfinished
            item = content_mapping.map_build(project_id, build)
            unfinished += item["status"] not in FINISHED_STATUSES
            if build.entity("artifacts_file").text("filename"):
                self.report.count("artifacts").read += 1
            return item

        await self._count_collection("builds", self.source.path("builds", project=project_id), map_build)
        if unfinished:
            self.report.note(f"{project_path}: unfinished builds: {unfinished:,}; runners here do not continue them")


def _map_issue(project_id: str, issue: SourceEntity) -> Item:
    if content_mapping.is_confidential(issue):
        raise InvalidEntity(CONFIDENTIAL)
    return content_mapping.map_issue(project_id, issue)


def _map_snippet(project_id: str, snippet: SourceEntity) -> Item:
    return content_mapping.map_snippet(project_id, snippet, "")


CONTENTS: tuple[ProjectCollection, ...] = (
    ("issues", "issues", _map_issue),
    ("snippets", "snippets", _map_snippet),
)
"""What is read whole here, since a rehearsal has no mark of an earlier run."""

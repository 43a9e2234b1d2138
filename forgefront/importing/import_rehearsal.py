"""Counts what an import would read, and finds what it could not take, without writing anything."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from forgefront.importing import entity_mapping
from forgefront.importing.account_import import NO_TOKENS, report_parts_of_user, report_place_of_group
from forgefront.importing.entity_fields import InvalidEntity, SourceEntity
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_run import ImportOptions, ImportProgress, for_each
from forgefront.importing.source_errors import SourceSkipped
from forgefront.importing.source_instance import SourceInstance

PROJECT_KINDS = (
    ("project members", "members"),
    ("labels", "labels"),
    ("milestones", "milestones"),
    ("hooks", "project_hooks"),
    ("deploy keys", "deploy_keys"),
    ("variables", "variables"),
    ("triggers", "triggers"),
    ("issues", "issues"),
    ("merge requests", "merge_requests"),
    ("snippets", "snippets"),
    ("builds", "builds"),
)
"""What is counted in each project: kind and route."""


@dataclass
class ImportRehearsal:
    source: SourceInstance
    report: ImportReport
    progress: ImportProgress
    options: ImportOptions

    async def count_all(self) -> None:
        """Counts everything that the options select. Notes, traces and what belongs to commits are listed by their parents alone."""
        if self.options.is_whole:
            await self._read_users()
            async for group in self._read("groups"):
                report_place_of_group(self.report, self.source.path("group", group=group.id), group)
            if self.source.is_admin:
                await self._count("hooks", self.source.path("system_hooks"))
        projects = await self._read_projects()
        self.progress.expect("projects", len(projects))

        async def count_project(project: SourceEntity) -> None:
            for kind, route in PROJECT_KINDS:
                await self._count(kind, self.source.path(route, project=project.id))
            self.progress.advance("projects", is_phase=True)

        await for_each(projects, count_project, parallel=self.source.client.parallel)
        self.report.note(
            "notes, traces, artifacts, statuses and comments of commits are not counted: they are listed by their parents alone"
        )
        self.report.is_complete = True

    async def _read_users(self) -> None:
        async for user in self._read("users"):
            report_parts_of_user(self.report, user)
        if not await self.source.shows_tokens():
            self.report.note(NO_TOKENS)

    async def _read(self, kind: str) -> AsyncIterator[SourceEntity]:
        """The entries of a collection of the instance, counted."""
        path = self.source.path(kind)
        try:
            async for fields in self.source.client.read_all(path):
                self.report.count(kind).read += 1
                yield SourceEntity(fields)
        except SourceSkipped as error:
            self.report.skip(kind, path, error.reason)

    async def _read_projects(self) -> list[SourceEntity]:
        if self.options.project is not None:
            self.report.count("projects").read += 1
            return [SourceEntity(await self.source.client.get_object(self.source.path("project", project=self.options.project)))]
        route = "group_projects" if self.options.group is not None else "projects" if self.source.is_admin else "own_projects"
        path = self.source.path(route, group=self.options.group)
        projects = list[SourceEntity]()
        async for fields in self.source.client.read_all(path):
            project = SourceEntity(fields)
            self.report.count("projects").read += 1
            try:
                entity_mapping.map_project(project)
            except InvalidEntity as error:
                self.report.skip("projects", f"{path}/{project.id or '?'}", str(error))
                continue
            projects.append(SourceEntity({"id": project.id}))
        return projects

    async def _count(self, kind: str, path: str) -> None:
        """By the total that the source reports; a list without one is read."""
        number = 0
        try:
            async for page in self.source.client.pages(path):
                if page.total is not None:
                    number = page.total
                    break
                number += len(page.entries)
        except SourceSkipped as error:
            self.report.skip(kind, path, error.reason)
        self.report.count(kind).read += number

"""Runs an import from its beginning to its end: what there is, in which order, and how much at once."""

from dataclasses import dataclass, field
from typing import Any

from forgefront.importing import entity_mapping
from forgefront.importing.account_import import AccountImporter
from forgefront.importing.build_import import BuildImporter
from forgefront.importing.entity_fields import InvalidEntity, Item, SourceEntity
from forgefront.importing.import_run import ImportRun, for_each
from forgefront.importing.import_target import BatchWriter
from forgefront.importing.note_import import NoteImporter
from forgefront.importing.omissions import OmissionFinder
from forgefront.importing.project_import import ProjectImporter, ProjectWork
from forgefront.importing.source_errors import SourceSkipped
from forgefront.importing.upload_import import UploadImporter

NAMESPACE_TIMES = ("created_at", "updated_at")


@dataclass
class ImportRunner:
    """`works` are the imported projects by their ids in the source."""

    run: ImportRun
    works: dict[str, ProjectWork] = field(default_factory=dict)
    _items: list[tuple[str, Item]] = field(default_factory=list)
    _namespace_times: dict[int, SourceEntity] = field(default_factory=dict)
    _groups: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._accounts = AccountImporter(self.run)
        uploads = UploadImporter(self.run)
        self._omissions = OmissionFinder(self.run)
        self._projects = ProjectImporter(self.run, self._accounts, uploads)
        self._notes = NoteImporter(self.run, self._accounts, uploads)
        self._builds = BuildImporter(self.run, self._accounts)

    async def import_all(self) -> None:
        """Imports everything that the options select. Raises SourceUnreachable, SourceUnauthorized, OperationRejected."""
        await self._read_projects()
        if self.run.options.is_whole and self.run.source.is_admin:
            await self._accounts.import_settings()
        if self.run.options.is_whole:
            await self._accounts.import_users()
            await self._accounts.import_groups(self._namespace_times)
        else:
            await self._import_namespaces()
        await self._import_projects()
        if self.run.options.is_whole and self.run.source.is_admin:
            await self._accounts.import_system_hooks()
            await self._accounts.import_runners()
        works = list(self.works.values())
        for phase, step in (
            ("contents", self._import_contents),
            ("notes and builds", self._import_notes_and_builds),
        ):
            self.run.progress.expect(f"projects: {phase}", len(works))

            async def take_step(work: ProjectWork, step: Any = step, phase: str = phase) -> None:
                await step(work)
                self.run.progress.advance(f"projects: {phase}", is_phase=True)

            await for_each(works, take_step, parallel=max(self.run.parallel, self.run.mirrors.parallel))
        await self._accounts.report_removed_members()
        await self.run.target.finish()
        self.run.report.is_complete = True

    async def _import_contents(self, work: ProjectWork) -> None:
        await self._projects.import_contents(work)
        await self._omissions.find_wiki(work, self._projects.find_repository(work))
        await self._omissions.find_lfs(work)

    async def _import_notes_and_builds(self, work: ProjectWork) -> None:
        await self._notes.import_notes(work)
        await self._builds.import_builds(work)
        await self._omissions.find_empty_pipelines(work)
        await self._builds.import_commit_facts(work)
        await self.run.target.flush_marks()

    async def _read_projects(self) -> None:
        """Reads the list of projects, whose namespaces have what lists of groups and users do not show."""
        options, source = self.run.options, self.run.source
        if options.project is not None:
            await self._add_project(SourceEntity(await source.client.get_object(source.path("project", project=options.project))))
            return
        async for project in self.run.read_projects(options):
            await self._add_project(project)

    async def _add_project(self, listed: SourceEntity) -> None:
        """Projects are read one by one, because lists show neither all fields nor the CI token."""
        path = self.run.source.path("project", project=listed.id)
        if self.run.options.project is not None:
            self.run.report.count("projects").read += 1
        try:
            project = SourceEntity(await self.run.source.client.get_object(path))
            item = entity_mapping.map_project(project)
        except (SourceSkipped, InvalidEntity) as error:
            self.run.report.skip("projects", path, error.reason)
            return
        if reason := entity_mapping.describe_members_only_features(project):
            self.run.report.record_omission("projects", path, reason)
        namespace = project.entity("namespace")
        self._accounts.record_namespace(project)
        self._namespace_times[namespace.id or 0] = SourceEntity({name: namespace.fields.get(name) for name in NAMESPACE_TIMES})
        if not project.entity("owner").fields or namespace.text("kind") == "group":
            self._groups.add(namespace.id or 0)
        else:
            self._accounts.owners.append(project.entity("owner"))
        self._items.append((path, item))
        self.works[item["sourceId"]] = ProjectWork(
            id=item["sourceId"],
            path=project.text("path_with_namespace") or "",
            web_url=project.text("web_url") or "",
            ssh_url=project.text("ssh_url_to_repo") or "",
            runners_token=project.text("runners_token"),
            wiki_changed_at=(project.time("last_activity_at") or "") if project.boolean("wiki_enabled") else None,
        )

    async def _import_namespaces(self) -> None:
        """The groups and owners of the selected projects."""
        await self._accounts.ensure_users(self._accounts.owners)
        selected = {self.run.options.group} if self.run.options.group is not None else set()
        for group in selected or map(str, sorted(self._groups)):
            await self._accounts.import_groups(self._namespace_times, only=group)

    async def _import_projects(self) -> None:
        """All projects; forks after their sources, as far as these are imported."""
        creators = [SourceEntity({"id": int(item["creatorId"])}) for _, item in self._items if "creatorId" in item]
        if not self.run.options.is_whole:
            await self._accounts.ensure_users(creators)
        forks = [each for each in self._items if "forkedFromId" in each[1]]
        others = [each for each in self._items if "forkedFromId" not in each[1]]
        writer, results = BatchWriter(self.run.target, "projects"), list[dict[str, Any]]()
        for where, item in (*others, *sorted(forks, key=lambda each: int(each[1]["sourceId"]))):
            results += await writer.add(where, item)
        results += await writer.flush()
        for result in results:
            if result["outcome"] == "SKIPPED":
                self.works.pop(result["sourceId"], None)
        # A fork of a fork may have a smaller id than its source, after a change of the link.
        waiting = {result["sourceId"] for result in results if any(each["field"] == "forkedFromId" for each in result["errors"])}
        again = [each for each in forks if each[1]["sourceId"] in waiting]
        for start in range(0, len(again), 100):
            await self.run.target.write("projects", again[start : start + 100])
        self._items.clear()

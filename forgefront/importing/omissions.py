"""Finds what a project has that no import takes, so that the report lists it: wiki pages, LFS objects, pipelines without builds."""

import asyncio
from dataclasses import dataclass

from forgefront.importing.entity_fields import SourceEntity
from forgefront.importing.import_run import ImportRun
from forgefront.importing.project_import import ProjectWork
from forgefront.importing.repository_mirrors import MirrorSource
from forgefront.importing.source_errors import SourceMissing, SourceSkipped
from forgefront.importing.source_routes import ApiVersion


@dataclass
class OmissionFinder:
    """Later runs look for a wiki when there was activity in the project, and for pipelines that are newer than those of the last run."""

    run: ImportRun

    async def find_wiki(self, work: ProjectWork, repository: MirrorSource) -> None:
        """The wiki is a repository of its own, which exists when it has a page."""
        mark = work.mark_name("wiki")
        if not work.has_repository or work.wiki_changed_at is None or self.run.target.marks.get(mark) == work.wiki_changed_at:
            return
        wiki = MirrorSource(f"{repository.url.removesuffix('.git')}.wiki.git", repository.credentials)
        if await self.run.mirrors.has_branches(int(work.id), wiki):
            self.run.report.record_omission("wikis", f"{work.path}.wiki.git", "its pages: clone it by hand")
        else:
            await self.run.target.set_mark(mark, work.wiki_changed_at)

    async def find_lfs(self, work: ProjectWork) -> None:
        """Reports files in LFS, if refs of the mirror changed."""
        if work.has_new_refs and await asyncio.to_thread(self.run.mirrors.uses_lfs, int(work.id)):
            self.run.report.record_omission(
                "LFS objects", f"{work.path}.git", "the files that its .gitattributes keep outside of git: copy them by hand"
            )

    async def find_empty_pipelines(self, work: ProjectWork) -> None:
        """Builds bring their pipelines along; v4 also lists those whose builds were all skipped or invalid."""
        if self.run.source.api is not ApiVersion.V4:
            return
        path, newest = self.run.source.path("pipelines", project=work.id), 0
        mark = int(self.run.target.marks.get(work.mark_name("pipelines"), 0))
        try:
            async for fields in self.run.source.client.read_all(path):
                pipeline = SourceEntity(fields)
                if (number := pipeline.id or 0) <= mark:
                    break
                newest = max(newest, number)
                if number not in work.pipelines:
                    self.run.report.skip("pipelines", f"{path}/{number}", f"it has no builds; its status is {pipeline.text('status')}")
        except SourceMissing:
            return
        except SourceSkipped as error:
            self.run.report.record_omission("pipelines", path, error.reason)
            return
        if newest:
            await self.run.target.set_mark(work.mark_name("pipelines"), str(newest))

"""Archives of the files of a commit, made while they are sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from graph.context import Context, Services
from graph.errors import Unavailable, UnreadableRepository
from graph.rules.git.commits import get_commit
from graph.served_files import read_first
from storage import tables
from storage.git.output_streams import ArchiveFormat, stream_archive
from storage.git.protocol.process_slots import TransportBusy, end_slow_reader
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class CommitArchive:
    """An archive of a commit of a project. `name` is that of the file, which has one directory of the same name without the ending."""

    project_id: int
    commit_oid: str
    format: ArchiveFormat
    name: str


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A served file with an archive for a user, whose size is not known before its end."""

    services: Services
    archive: CommitArchive
    viewer_id: int
    size: None = None

    @property
    def name(self) -> str:
        return self.archive.name

    @asynccontextmanager
    async def open(self, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """A context manager that yields the chunks of the whole archive. Entering it raises Unavailable.

        Raises ClientTooSlow later, if the client takes next to nothing while others wait for its slot.
        """
        archive, repositories = self.archive, self.services.repositories
        prefix = archive.name.removesuffix(f".{archive.format}")
        try:
            async with (
                self.services.archive_limiter.slot(f"user {self.viewer_id}"),
                repositories.use(archive.project_id) as path,
                stream_archive(path, archive.commit_oid, archive.format, prefix) as chunks,
                end_slow_reader(self.services.archive_limiter, await read_first(chunks)) as watched_chunks,
            ):
                yield watched_chunks
        except TransportBusy as error:
            raise Unavailable("Too many archives are being made. Try again in a moment.") from error
        except (NotARepository, GitCommandError) as error:
            log.warning("archive failed", project_id=archive.project_id, error=str(error))
            raise UnreadableRepository from error


async def get_archive(context: Context, project: tables.Project, ref: str | None, archive_format: ArchiveFormat) -> CommitArchive:
    """The archive of a branch, tag or commit, by default of the default branch. Raises NotFound, Unavailable."""
    name = ref or project.default_branch or ""
    oid = (await get_commit(context, project, name)).oid
    shown = "" if name.lower() == oid else f"{name.replace('/', '-')}-"
    return CommitArchive(project.id, oid, archive_format, f"{project.path}-{shown}{oid}.{archive_format}")


def offer_archive(context: Context, archive: CommitArchive) -> str:
    """Register the archive for download; returns the handle under which the endpoint finds its bytes."""
    handle = f"archive {archive.project_id} {archive.name}"
    context.files[handle] = ArchiveFile(context.services, archive, context.viewer.id)
    return handle


def build_download_url(context: Context, archive: CommitArchive) -> str:
    """The URL from which the archive is downloaded with a private token."""
    path = f"/api/v3/projects/{archive.project_id}/repository/archive.{archive.format}?sha={archive.commit_oid}"
    return context.services.external_url + path

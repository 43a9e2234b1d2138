"""Archives of repositories."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.scalars import GitOid
from graph.rules.git import archives
from graph.rules.permissions.policy import Action, require
from graph.types.git.trees import REF_ARGUMENT
from storage.git.output_streams import ArchiveFormat as Format

ArchiveFormat = strawberry.enum(Format, name="ArchiveFormat", description="Format of an archive.")


@strawberry.type(description="An archive of the files of a commit, which is made while it is downloaded.")
class Archive:
    name: str = column(description="File name. The archive has one directory of this name, without the ending.")
    format: ArchiveFormat = column(description="Format.")  # type: ignore[valid-type]
    commit_oid: GitOid = column(description="ID of the commit.")

    @strawberry.field(description="URL of the file; requires a private token.")
    def download_url(self, info: Info) -> str:
        return archives.build_download_url(info.context, _as_archive(self))

    @strawberry.field(description="Internal reference to the contents, valid within one operation; grants no access.")
    def stream(self, info: Info) -> str:
        return archives.offer_archive(info.context, _as_archive(self))


def _as_archive(archive: Any) -> archives.CommitArchive:
    return archive  # type: ignore[no-any-return]


@strawberry.type
class ProjectArchiveFields:
    """Fields of a project about archives of its files."""

    @strawberry.field(description="Archive of the files of a branch, tag or commit. Null, with an error, if it does not exist.")
    async def archive(
        self,
        info: Info,
        ref: Annotated[str | None, REF_ARGUMENT] = None,
        format: Annotated[ArchiveFormat, strawberry.argument(description="Format.")] = Format.TAR_GZ,  # type: ignore[valid-type]
    ) -> Archive | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await archives.get_archive(info.context, project, ref, format)  # type: ignore[return-value]

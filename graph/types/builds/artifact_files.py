"""Files inside artifacts that are zip archives."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window
from graph.fields.scalars import BigInt
from graph.rules.builds import artifact_files
from storage.objects.zip_archives import EntryKind

MAX_ENTRIES = 1_000
"""Maximum size of a page of a folder."""

ArtifactEntryKind = strawberry.enum(EntryKind, name="ArtifactEntryKind", description="Kind of an entry of an archive.")


@strawberry.type(description="An entry of a folder of an artifact that is a zip archive.")
class ArtifactEntry:
    name: str = column(description="Name, without folders.")
    path: str = column(description="Path from the root of the archive.")
    kind: ArtifactEntryKind = column(description="Kind of the entry.")  # type: ignore[valid-type]
    size: BigInt | None = column(description="Decompressed size in bytes, as the archive declares it; null for a folder.")

    @strawberry.field(description="URL of the file or link; requires a private token. Null for a folder.")
    async def download_url(self, info: Info) -> str | None:
        entry: Any = self
        if entry.kind is EntryKind.FOLDER:
            return None
        return await artifact_files.build_file_url(info.context, entry.artifact, entry.path)


@strawberry.type(description="A file of an artifact that is a zip archive.")
class ArtifactFile:
    name: str = column(description="Name, without folders.")
    path: str = column(description="Path from the root of the archive.")
    size: BigInt = column(description="Decompressed size in bytes.")

    @strawberry.field(description="URL of the file; requires a private token.")
    async def download_url(self, info: Info) -> str:
        file: Any = self
        return await artifact_files.build_file_url(info.context, file.artifact, file.path)

    @strawberry.field(description="Internal reference to the contents, valid within one operation; grants no access.")
    def stream(self, info: Info) -> str:
        file: Any = self
        return artifact_files.offer_file(info.context, file)


async def _resolve_entries(root: Any, info: Info, *, path: str, **arguments: Any) -> Any:
    return await artifact_files.entry_page(info.context, root, path, make_window(arguments, MAX_ENTRIES))


@strawberry.type
class ArtifactFileFields:
    """Fields of an artifact about the files in it."""

    entries: Connection[ArtifactEntry] | None = connection_field(
        _resolve_entries,
        extra_arguments={
            "path": (Annotated[str, strawberry.argument(description="Path of the folder in the archive; default: its root.")], ""),
        },
        description="Entries of a folder of the zip archive, folders first, each kind by name. Null, with an error, if there is no such"
        " folder, or if the artifact is not a zip archive, is damaged, has unsafe or repeated paths, or has more than"
        " 20,000 entries. An operation may read 5 archives.",
        max_page_size=MAX_ENTRIES,
    )

    @strawberry.field(
        description="File of the zip archive. Null, with an error, if there is none at the path, or if it is encrypted, compressed by"
        " another method than deflate, or larger than 256 MiB."
    )
    async def file(
        self, info: Info, path: Annotated[str, strawberry.argument(description="Path from the root of the archive.")]
    ) -> ArtifactFile | None:
        artifact: Any = self
        return await artifact_files.find_file(info.context, artifact, path)  # type: ignore[return-value]

"""The blame of files."""

from typing import Any

import strawberry

from graph.context import Info
from graph.fields.scalars import GitOid
from graph.rules.git.file_search import ProjectLineRange
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from storage.git.history.blame import LineRange


@strawberry.type(description="Successive lines of a file that one commit changed last.")
class BlameRange:
    @strawberry.field(description="Number of the first line; the first of the file is 1.")
    def start_line(self) -> int:
        return _as_range(self).start

    @strawberry.field(description="Number of lines.")
    def line_count(self) -> int:
        return _as_range(self).count

    @strawberry.field(description="Path of the file in the commit.")
    def path(self) -> str:
        return _as_range(self).path

    @strawberry.field(description="ID of the commit that changed the lines last.")
    def oid(self) -> GitOid:
        return _as_range(self).oid  # type: ignore[return-value]

    @strawberry.field(description="Commit that changed the lines last.")
    async def commit(self, info: Info) -> Commit | None:
        found: Any = self
        return await load_commit(info, found.project_id, found.range.oid)

    @strawberry.field(description="ID of the parent commit that has the file as it was before; null if the commit created the file.")
    def previous_oid(self) -> GitOid | None:
        return _as_range(self).previous_oid  # type: ignore[return-value]

    @strawberry.field(description="Path of the file in that parent; null if the commit created the file.")
    def previous_path(self) -> str | None:
        return _as_range(self).previous_path


def _as_range(root: Any) -> LineRange:
    found: ProjectLineRange = root
    return found.range

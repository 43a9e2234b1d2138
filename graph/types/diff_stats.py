"""How much differs between two commits."""

import strawberry

from graph.declare import column


@strawberry.type(description="How much differs, renames found; a binary file counts as a file without lines.")
class DiffStat:
    files: int = column(description="How many files.")
    additions: int = column(description="How many lines were added.")
    deletions: int = column(description="How many lines were removed.")

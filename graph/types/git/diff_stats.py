"""Totals of a diff."""

import strawberry

from graph.fields.declarations import column


@strawberry.type(description="Diff statistics, with rename detection; a binary file counts as a file without lines.")
class DiffStat:
    files: int = column(description="Number of changed files.")
    additions: int = column(description="Number of added lines.")
    deletions: int = column(description="Number of deleted lines.")

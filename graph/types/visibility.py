"""Visibility levels of projects and snippets."""

import strawberry

from storage import tables

Visibility = strawberry.enum(
    tables.Visibility,
    name="Visibility",
    description="Visibility of a project, or of a snippet among users who can see its project.",
)

"""Who sees a thing without being a member."""

import strawberry

from storage import tables

Visibility = strawberry.enum(
    tables.Visibility,
    name="Visibility",
    description="Who may see a project, or a snippet of a project that they see, without being a member.",
)

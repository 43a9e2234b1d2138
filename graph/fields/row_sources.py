"""What a statement that selects a row selects of a field too, in place of the field's resolver (`computed(from_row=…)`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graph.context import StaticSettings
from graph.rules.permissions.sql_policy import SqlViewer


@dataclass(frozen=True, eq=False)
class FromSql:
    """A field that a statement on the row selects, as `select(columns, viewer)`: one expression, or several.

    A field with a leaf type is the expression, or what `derive` makes of all of them. A field with an object type has an expression for
    each of `fields`, in this order; where another one is selected of it, the resolver is called.
    """

    select: Callable[[Any, SqlViewer], Sequence[Any]]
    derive: Callable[..., Any] | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FromRelated:
    """A leaf that is a function of columns of the row and of the row that its foreign key `key`, which is not null, refers to.

    `derive(settings)` returns the function, which takes the values of `columns` and then those of `related_columns`.
    """

    key: Any
    columns: tuple[Any, ...]
    related_columns: tuple[Any, ...]
    derive: Callable[[StaticSettings], Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class FromJoins:
    """A field that is the row at the end of a path of foreign keys; null if a key is null.

    `is_visible(columns, viewer)` is a condition on the last row, which is null where it is not met.
    """

    keys: tuple[Any, ...]
    is_visible: Callable[[Any, SqlViewer], Any] | None = None

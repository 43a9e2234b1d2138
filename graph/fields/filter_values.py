"""The values of a filter that only bind parameters of a statement: the ends of a time range, the string of a search, and the value of a
list that has one.

Dashboards request "the last 30 days", people search for a word while they type it, and clients of v3 find an issue by its number in a list:
these values differ each time, and compiling a statement for each takes longer than running it. So the statement of a list is compiled for
the shape of its filter, and takes these values when it runs.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from graph.rules.search_terms import MAX_SEARCH_LENGTH
from storage.database.dialects import is_plain_text

VARYING_ATTRIBUTES = "varying_attributes"
"""The attribute of the class of an input object that names those of its fields whose values have no other effect on conditions than as the
values of their parameters."""
SEARCH_ATTRIBUTES = "search_attributes"
"""The attribute of the class of a filter that names those of its fields that conditions only pass to `contains_ignoring_case`. Their values
vary if they are plain text; a statement for another string is compiled for it."""
LIST_ATTRIBUTES = "list_attributes"
"""The attribute of the class of a filter that names those of its fields that conditions only pass to `in_`. The value of a list that has
one varies; a statement for another list is compiled for it."""
USERNAME_ATTRIBUTES = "username_attributes"
"""As LIST_ATTRIBUTES, of lists that conditions only pass to `has_any_username`. A name with capital letters does not vary."""


class _Number(int):
    """A number that is another object than each other number."""


class _String(str):
    """A string that is another object than each other string."""

    __slots__ = ()

    def lower(self) -> str:
        """The object itself, if it has no capital letters: its parameter can have the values of other such strings."""
        lower = super().lower()
        return self if lower == self else lower


def varying_values(filter_input: Any) -> dict[str, Any]:
    """The values by the names of their parameters, as `created.since` and `filter.search`; those that are not given are left out."""
    if filter_input is None:
        return {}
    attributes = vars(filter_input)
    found: dict[str, Any] | None = attributes.get("varying_values")
    if found is None:
        found = attributes["varying_values"] = {
            f"{name}.{inner}": each
            for name, value in attributes.items()
            for inner in getattr(value, VARYING_ATTRIBUTES, ())
            if (each := getattr(value, inner)) is not None
        }
        found |= {f"filter.{name}": attributes[name] for name in _varying_searches(filter_input)}
        found |= {f"filter.{name}": attributes[name][0] for name in _varying_lists(filter_input)}
    return found


def _varying_searches(filter_input: Any) -> Iterator[str]:
    """The names of the fields of the filter that have plain text to search for."""
    for name in getattr(filter_input, SEARCH_ATTRIBUTES, ()):
        # An empty string is no condition in some filters; a long one is refused when conditions are made of it.
        if (string := getattr(filter_input, name)) and len(string) <= MAX_SEARCH_LENGTH and is_plain_text(string):
            yield name


def _varying_lists(filter_input: Any) -> Iterator[str]:
    """The names of the fields of the filter that have a list of one value which varies."""
    for name in getattr(filter_input, LIST_ATTRIBUTES, ()):
        values = getattr(filter_input, name)
        if values is not None and len(values) == 1 and values[0] is not None:
            yield name
    for name in getattr(filter_input, USERNAME_ATTRIBUTES, ()):
        usernames = getattr(filter_input, name)
        if usernames is not None and len(usernames) == 1 and usernames[0] == usernames[0].lower():
            yield name


def shape_of(filter_input: Any) -> str:
    """`repr` of the filter without the varying values, though with which of them are given.

    It is cached in the filter; one whose conditions depend on more than its fields has another one there (`bind_viewer`).
    """
    if filter_input is None:
        return ""
    attributes = vars(filter_input)
    shape: str | None = attributes.get("shape")
    if shape is None:
        shape = attributes["shape"] = repr(_copy_with(filter_input, lambda value: value is not None))
    return shape


def with_distinct_values(filter_input: Any) -> tuple[Any, dict[int, str]]:
    """A copy of the filter in which each varying value is another object, and the names of their parameters by the ids of these objects.

    A variable may be used in two places, which have the same value only this time.
    """
    if not varying_values(filter_input):
        return filter_input, {}
    distinct = _copy_with(filter_input, _copy_value)
    return distinct, {id(value): name for name, value in varying_values(distinct).items()}


def _copy_value(value: Any) -> Any:
    """Another object with the same value."""
    if isinstance(value, str):
        return _String(value)
    return _Number(value) if isinstance(value, int) else copy.deepcopy(value)


def _copy_with(filter_input: Any, replace: Callable[[Any], Any]) -> Any:
    """A copy whose varying values are replaced."""
    copied = copy.copy(filter_input)
    vars(copied).pop("varying_values", None)
    for name, value in [*vars(copied).items()]:
        if inner_names := getattr(value, VARYING_ATTRIBUTES, ()):
            inner_copy = copy.copy(value)
            for inner in inner_names:
                setattr(inner_copy, inner, replace(getattr(value, inner)))
            setattr(copied, name, inner_copy)
    for name in _varying_searches(filter_input):
        setattr(copied, name, replace(getattr(filter_input, name)))
    for name in _varying_lists(filter_input):
        setattr(copied, name, [replace(getattr(filter_input, name)[0])])
    return copied

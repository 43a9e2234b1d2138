"""Every field of a filter has an effect: a field that `conditions` does not read would be accepted and ignored."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest

import graph.types

READ_ELSEWHERE = frozenset({"CommitStatusFilter.all"})
"""Fields that the resolver of the list reads, because they choose its rows before the conditions do."""


def find_filters() -> Iterator[type]:
    """The input types that make conditions of their fields."""
    for module in pkgutil.walk_packages(graph.types.__path__, "graph.types."):
        for member in vars(importlib.import_module(module.name)).values():
            if (
                inspect.isclass(member)
                and member.__module__ == module.name
                and dataclasses.is_dataclass(member)
                and "conditions" in vars(member)
            ):
                yield member


@pytest.mark.parametrize("kind", list(find_filters()), ids=lambda kind: kind.__name__)
def test_every_field_is_read(kind: type) -> None:
    source = inspect.getsource(kind)
    unread = [
        field.name
        for field in dataclasses.fields(kind)
        if not re.search(rf"\bself\.{field.name}\b", source) and f"{kind.__name__}.{field.name}" not in READ_ELSEWHERE
    ]
    assert not unread, f"{kind.__name__}.conditions must read {', '.join(unread)}"

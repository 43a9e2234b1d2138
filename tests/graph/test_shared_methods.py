"""Types whose methods are shared behave as the dataclasses that strawberry would make."""

import dataclasses
from typing import Any

import pytest
import strawberry

from graph.fields import shared_methods


@strawberry.input
class Base:
    name: str = strawberry.field(description="A name.")


@strawberry.input
class Filter(Base):
    count: int | None = None
    labels: list[str] = strawberry.field(default_factory=list)


@dataclasses.dataclass(kw_only=True)
class Equal:
    name: str
    count: int | None = None
    labels: list[str] = dataclasses.field(default_factory=list)


def test_types_behave_as_dataclasses() -> None:
    cases: tuple[dict[str, Any], ...] = ({"name": "a"}, {"name": "b", "count": 3, "labels": ["x"]})
    for values in cases:
        made, equal = Filter(**values), Equal(**values)
        assert vars(made) == vars(equal) and repr(made) == repr(equal).replace("Equal", "Filter")
        assert made == Filter(**values) and made != Filter(name="other") and made != Base(name="a")
        assert dataclasses.replace(made, count=5) == Filter(**{**values, "count": 5})
    assert Filter(name="a").labels is not Filter(name="a").labels
    assert Filter.__hash__ is None
    # None of them was compiled for the type.
    assert {Filter.__repr__, Filter.__eq__} == {shared_methods._represent, shared_methods._is_equal}


@pytest.mark.parametrize("values", [{}, {"name": "a", "unknown": 1}])
def test_missing_and_unknown_values_raise(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"missing or unknown: (name|unknown)"):
        Filter(**values)

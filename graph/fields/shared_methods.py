"""Makes strawberry's types without generated methods, which took a tenth of the time that every process needs to start.

Strawberry makes each type a dataclass, which compiles an `__init__`, a `__repr__` and an `__eq__` of its own, for hundreds of types most
of which are never instantiated, because rows are read as they are. The types share three methods here that behave the same.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from strawberry.types import object_type
from strawberry.types.field import StrawberryField

C = TypeVar("C", bound=type)

_FIELD_TYPE: Any = StrawberryField.type
_NO_TYPE: Any = property(lambda self: None, _FIELD_TYPE.fset)


def share_methods() -> None:
    """Has strawberry call `dataclass` of this module from now on."""
    # Of the decorators' module only: others keep the standard library's.
    vars(object_type)["dataclasses"] = SimpleNamespace(**{**vars(dataclasses), "dataclass": dataclass})


def dataclass(*, kw_only: bool) -> Callable[[C], C]:
    """As `dataclasses.dataclass(kw_only=True)`, with shared methods."""

    def decorate(cls: C) -> C:
        # The default would be the signature, of which the types of all arguments are written out.
        cls.__doc__ = cls.__doc__ or cls.__name__
        with _unresolved_field_types():
            dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only)(cls)
        for name, method in (("__init__", _make_init(cls)), ("__repr__", _represent), ("__eq__", _is_equal), ("__hash__", None)):
            if name not in cls.__dict__:
                setattr(cls, name, method)
        return cls

    return decorate


@contextmanager
def _unresolved_field_types() -> Iterator[None]:
    """Has fields resolve their types later, when those that they refer to exist; a dataclass only asks whether the type is a string."""
    StrawberryField.type = _NO_TYPE  # type: ignore[method-assign]
    try:
        yield
    finally:
        StrawberryField.type = _FIELD_TYPE  # type: ignore[method-assign]


def _make_init(cls: type) -> Callable[..., None]:
    fields = [each for each in dataclasses.fields(cls) if each.init]
    names = {each.name for each in fields}
    defaults = {each.name: each.default for each in fields if each.default is not dataclasses.MISSING}
    factories = [(each.name, each.default_factory) for each in fields if each.default_factory is not dataclasses.MISSING]
    required = names - defaults.keys() - {name for name, _ in factories}
    has_post_init = hasattr(cls, "__post_init__")

    def initialize(self: Any, **values: Any) -> None:
        if not required <= values.keys() or not values.keys() <= names:
            wrong = sorted(required - values.keys()) or sorted(values.keys() - names)
            raise TypeError(f"{cls.__name__}: missing or unknown: {', '.join(wrong)}")
        attributes = self.__dict__
        attributes.update(defaults)
        for name, make_default in factories:
            if name not in values:
                attributes[name] = make_default()
        attributes.update(values)
        if has_post_init:
            self.__post_init__()

    return initialize


def _represent(self: Any) -> str:
    values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({values})"


def _is_equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, each.name) == getattr(other, each.name) for each in dataclasses.fields(self) if each.compare)

"""Generated code: the one place where source is compiled.

Sources consist of our own names, numbers and attribute names; every other value, above all what a caller wrote, is bound to a name.
"""

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

FILE_NAME = "<generated>"
"""The file that tracebacks and profiles show."""
MAX_CACHED_SOURCE_CHARACTERS = 1_000
"""Maximum length of a source whose code object is cached. Values are never part of sources, so those of the usual selections, such as of a
user or a build, recur in many operations."""


class Scope:
    """The values that generated code uses, by name."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._count = 0

    def bind(self, value: Any) -> str:
        """A new name for a value: `v0`, `v1` and so on."""
        # As in the code objects, which share the strings of their names.
        name = sys.intern(f"v{self._count}")
        self._count += 1
        self._values[name] = value
        return name

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, such as a lambda."""
        return eval(compile_source(expression, "eval"), self._values)  # noqa: S307 - see the module

    def define(self, name: str, parameters: Sequence[str], body: Sequence[str]) -> Any:
        """Defines a function, and returns it. Its scope does not contain it, so it is freed without the garbage collector."""
        lines = "\n    ".join(body)
        exec(compile_source(f"def {name}({', '.join(parameters)}):\n    {lines}\n", "exec"), self._values)  # noqa: S102 - see the module
        return self._values.pop(name)


def compile_source(source: str, mode: str) -> Any:
    """The code object of a source."""
    return _compile_short(source, mode) if len(source) <= MAX_CACHED_SOURCE_CHARACTERS else compile(source, FILE_NAME, mode)


@lru_cache(maxsize=1024)
def _compile_short(source: str, mode: str) -> Any:
    return compile(source, FILE_NAME, mode)

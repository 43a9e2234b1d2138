"""Converts names of GraphQL to names of Python."""

import builtins
import keyword
import re

SHADOWED_NAMES = frozenset(("bool", "float", "int", "object", "str", "tuple", "property", "classmethod", "dt", "self", "cls", "data"))
"""Builtins that a field or an argument of this name would shadow."""


def snake_case(name: str) -> str:
    """
    >>> snake_case("mergeRequestsHTTPUrl"), snake_case("from"), snake_case("__typename")
    ('merge_requests_http_url', 'from_', 'typename')
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    text = text.strip("_") or "x"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if keyword.iskeyword(text) or text in SHADOWED_NAMES else text


def pascal_case(name: str) -> str:
    """
    >>> pascal_case("projectBuilds"), pascal_case("D01_Wall")
    ('ProjectBuilds', 'D01Wall')
    """
    return "".join(part[0].upper() + part[1:] for part in name.split("_") if part) or "X"


class UniqueNames:
    """Allocates names of a module, each once."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._names = set(reserved) | set(dir(builtins))

    def reserve(self, preferred: str, suffix: str) -> str:
        """`preferred`; if that is taken, with `suffix` appended; if that is taken too, with a number as well."""
        name = preferred
        if name in self._names:
            name = preferred + suffix
        number = 2
        while name in self._names:
            name = f"{preferred}{suffix}{number}"
            number += 1
        self._names.add(name)
        return name

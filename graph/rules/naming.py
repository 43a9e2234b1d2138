"""What names, titles and texts may be."""

import re

from graph.errors import Invalid, Required

LONGEST_NAME = 255
LONGEST_TEXT = 1_000_000
"""Characters of a description or a note."""

SURROGATE = re.compile("[\ud800-\udfff]")
LABEL = re.compile(r"[^&?,]+")


def clean(field: str, value: str, *, longest: int = LONGEST_TEXT) -> str:
    """The text as it may be kept. Raises Invalid for what no database keeps (NUL, lone surrogates) and for overlong text."""
    if not storable(value):
        raise Invalid(field, "has characters that cannot be stored")
    if len(value) > longest:
        raise Invalid(field, f"is too long (maximum is {longest} characters)")
    return value


def title(field: str, value: str) -> str:
    """A title or a name: one that is there, without blanks around it, of at most 255 characters. Raises Required, Invalid."""
    stripped = clean(field, value.strip(), longest=LONGEST_NAME)
    if not stripped:
        raise Required(field)
    return stripped


def label(name: str) -> str:
    """A label's title: not empty, without `&`, `?` and `,` (wire facts of labels). Raises Invalid on `labels`."""
    stripped = clean("labels", name.strip(), longest=LONGEST_NAME)
    if not LABEL.fullmatch(stripped):
        raise Invalid("labels", f"{name!r} is invalid")
    return stripped


def storable(value: str) -> bool:
    """Whether both databases can keep the text: no NUL, no half of a surrogate pair."""
    return "\0" not in value and SURROGATE.search(value) is None

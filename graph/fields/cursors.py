"""Cursors: opaque text that says where a page goes on. A mark in it tells of what list it is, values tell the place."""

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from graph.errors import BadRequest

T = TypeVar("T")


def encode_cursor(mark: str, *values: Any) -> str:
    """The cursor of this mark and these values, which JSON can say."""
    return base64.urlsafe_b64encode(orjson.dumps([mark, *values])).decode().rstrip("=")


def decode_cursor(cursor: str, mark: str, parse_values: Callable[..., T], *, list_description: str = "this list") -> T:
    """What `parse_values` makes of the values of a cursor of this mark.

    `parse_values` raises ValueError, TypeError, AttributeError or ArithmeticError (a timestamp in year 0) for values that no such cursor
    has.

    Raises BadRequest for text that is no cursor of `list_description`.
    """
    try:
        cursor_mark, *values = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if cursor_mark != mark:
            raise ValueError("a cursor of another list")
        return parse_values(*values)
    except (ArithmeticError, ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise BadRequest(f"This cursor is not one of {list_description}.") from error

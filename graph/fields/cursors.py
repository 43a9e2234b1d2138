"""Cursors: opaque strings with the position at which a page continues. They contain a mark of their list, and values of the position."""

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from graph.errors import BadRequest

T = TypeVar("T")


def encode_cursor(mark: str, *values: Any) -> str:
    """Encodes a cursor from a mark and values that are serializable as JSON."""
    return base64.urlsafe_b64encode(orjson.dumps([mark, *values])).decode().rstrip("=")


def decode_cursor(cursor: str, mark: str, parse_values: Callable[..., T], *, list_description: str = "this list") -> T:
    """Decodes a cursor with this mark and returns the result of `parse_values` for its values.

    `parse_values` raises ValueError, TypeError, AttributeError or ArithmeticError (a timestamp in year 0) for invalid values.

    Raises BadRequest for a string that is not a cursor of `list_description`.
    """
    try:
        cursor_mark, *values = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if cursor_mark != mark:
            raise ValueError("a cursor of another list")
        return parse_values(*values)
    except (ArithmeticError, ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise BadRequest(f"The cursor does not belong to {list_description}.") from error

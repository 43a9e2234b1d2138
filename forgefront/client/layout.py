"""Lays out lines as formatters do: 88 characters; brackets that do not fit have their contents on their own line, then one line each."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 88
INDENT_WIDTH = 4


@dataclass(frozen=True, slots=True)
class BracketExpression:
    """`head(a, b)` or `head[a, b]`."""

    head: str
    parts: "tuple[Piece, ...]"
    brackets: str = "()"


@dataclass(frozen=True, slots=True)
class UnionExpression:
    """`a | b`."""

    parts: "tuple[Piece, ...]"


Piece = str | BracketExpression | UnionExpression


def format_flat(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, UnionExpression):
        return " | ".join(map(format_flat, piece.parts))
    return f"{piece.head}{piece.brackets[0]}{', '.join(map(format_flat, piece.parts))}{piece.brackets[1]}"


def format_lines(before: str, piece: Piece, after: str, indent: int, *, may_wrap: bool = True) -> list[str]:
    """The lines of `before piece after` at an indent. A piece without brackets is put in parentheses, if `may_wrap`."""
    line = " " * indent + before + format_flat(piece) + after
    if len(line) <= WIDTH:
        return [line]
    margin = " " * indent
    if isinstance(piece, str):
        inner = " " * (indent + INDENT_WIDTH) + piece
        return [f"{margin}{before}(", inner, f"{margin}){after}"] if may_wrap and len(inner) <= WIDTH else [line]
    if isinstance(piece, UnionExpression):
        if not may_wrap:
            return _format_parts(before, piece.parts, after, indent)
        inner = " " * (indent + INDENT_WIDTH) + format_flat(piece)
        inside = [inner] if len(inner) <= WIDTH else _format_parts("", piece.parts, "", indent + INDENT_WIDTH)
        return [f"{margin}{before}(", *inside, f"{margin}){after}"]
    opening, closing = piece.brackets[0], piece.brackets[1]
    inner = " " * (indent + INDENT_WIDTH) + ", ".join(map(format_flat, piece.parts))
    if len(inner) <= WIDTH:
        inside = [inner]
    else:
        comma = "" if len(piece.parts) == 1 and opening == "[" else ","
        inside = [line for part in piece.parts for line in format_lines("", part, comma, indent + INDENT_WIDTH, may_wrap=False)]
    return [f"{margin}{before}{piece.head}{opening}", *inside, f"{margin}{closing}{after}"]


def _format_parts(before: str, parts: Sequence[Piece], after: str, indent: int) -> list[str]:
    lines: list[str] = []
    for number, part in enumerate(parts):
        start = before if number == 0 else "| "
        end = after if number == len(parts) - 1 else ""
        lines += format_lines(start, part, end, indent, may_wrap=False)
    return lines

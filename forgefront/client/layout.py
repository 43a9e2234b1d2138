"""Lines as formatters leave them: 88 characters, a bracket's contents on a line of their own where they do not fit, then a line each."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 88
STEP = 4


@dataclass(frozen=True, slots=True)
class Bracketed:
    """`head(a, b)` or `head[a, b]`."""

    head: str
    parts: "tuple[Piece, ...]"
    brackets: str = "()"


@dataclass(frozen=True, slots=True)
class Either:
    """`a | b`."""

    parts: "tuple[Piece, ...]"


Piece = str | Bracketed | Either


def flat(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Either):
        return " | ".join(map(flat, piece.parts))
    return f"{piece.head}{piece.brackets[0]}{', '.join(map(flat, piece.parts))}{piece.brackets[1]}"


def laid(before: str, piece: Piece, after: str, indent: int, *, wrapped: bool = True) -> list[str]:
    """The lines of `before piece after` at an indent. What has no brackets of its own is put in some, if `wrapped`."""
    line = " " * indent + before + flat(piece) + after
    if len(line) <= WIDTH:
        return [line]
    margin = " " * indent
    if isinstance(piece, str):
        inner = " " * (indent + STEP) + piece
        return [f"{margin}{before}(", inner, f"{margin}){after}"] if wrapped and len(inner) <= WIDTH else [line]
    if isinstance(piece, Either):
        if not wrapped:
            return _each(before, piece.parts, after, indent)
        inner = " " * (indent + STEP) + flat(piece)
        inside = [inner] if len(inner) <= WIDTH else _each("", piece.parts, "", indent + STEP)
        return [f"{margin}{before}(", *inside, f"{margin}){after}"]
    opening, closing = piece.brackets[0], piece.brackets[1]
    inner = " " * (indent + STEP) + ", ".join(map(flat, piece.parts))
    if len(inner) <= WIDTH:
        inside = [inner]
    else:
        comma = "" if len(piece.parts) == 1 and opening == "[" else ","
        inside = [line for part in piece.parts for line in laid("", part, comma, indent + STEP, wrapped=False)]
    return [f"{margin}{before}{piece.head}{opening}", *inside, f"{margin}{closing}{after}"]


def _each(before: str, parts: Sequence[Piece], after: str, indent: int) -> list[str]:
    lines: list[str] = []
    for number, part in enumerate(parts):
        start = before if number == 0 else "| "
        end = after if number == len(parts) - 1 else ""
        lines += laid(start, part, end, indent, wrapped=False)
    return lines

"""Pages: `page` and `per_page` in, `first` and `offset` to the graph, totals and links out (wire-facts 3, DECISIONS 7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from rest_v3.values import INTEGER, LARGEST

DEFAULT_SIZE = 20
LARGEST_SIZE = 100


@dataclass(frozen=True, slots=True)
class Page:
    """A page asked for: one-based number, and its size."""

    number: int
    size: int

    @property
    def offset(self) -> int:
        """How many entries come before it; past every list when the number is beyond a GraphQL Int."""
        return min((self.number - 1) * self.size, LARGEST)


FIRST = Page(1, DEFAULT_SIZE)


def read_page(sent: Mapping[str, Any]) -> Page:
    """The page that was asked for. Whatever is no positive number counts as not sent; more than 100 a page is 100."""
    if "page" not in sent and "per_page" not in sent:
        return FIRST
    size = _positive(sent.get("per_page"), DEFAULT_SIZE)
    return Page(_positive(sent.get("page"), 1), min(size, LARGEST_SIZE))


def _positive(raw: Any, default: int) -> int:
    if isinstance(raw, str):
        raw = raw.strip()
        # More digits than fit: a page that far is as empty as the last one that can be named.
        if raw.isascii() and raw.isdigit() and len(raw) > 9:
            return int(raw) if len(raw) <= 18 else LARGEST
        raw = int(raw) if INTEGER.fullmatch(raw) else default
    if isinstance(raw, bool) or not isinstance(raw, int) or raw <= 0:
        return default
    return raw


def headers(page: Page, *, total: int | None, more: bool, url: str, filters: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """The paging headers of a list.

    `total` is None where counting would cost the whole history: then `more` says whether a page follows, and neither
    totals nor a last page are told. `url` is the list's address without its query, `filters` the known parameters.
    """
    if total is not None:
        pages = -(-total // page.size)
        more = page.number < pages
    before = page.number - 1 or None
    after = page.number + 1 if more else None
    told = [
        (b"x-page", b"%d" % page.number),
        (b"x-per-page", b"%d" % page.size),
        (b"x-next-page", b"%d" % after if after else b""),
        (b"x-prev-page", b"%d" % before if before else b""),
    ]
    places = [("prev", before), ("next", after), ("first", 1)]
    if total is not None:
        told += [(b"x-total", b"%d" % total), (b"x-total-pages", b"%d" % pages)]
        places.append(("last", pages))
    head, tail = _around(filters, page.size)
    links = ", ".join([f'<{url}?{head}{number}{tail}>; rel="{place}"' for place, number in places if number is not None])
    told.append((b"link", links.encode("ascii")))
    return told


def _around(filters: Sequence[tuple[str, str]], size: int) -> tuple[str, str]:
    """A page's query, what stands before its number and what behind it: the links of a list differ in nothing else."""
    if not filters:
        return "page=", f"&per_page={size}"
    pairs = sorted([*filters, ("page", ""), ("per_page", str(size))])
    place = pairs.index(("page", "")) + 1
    return query(pairs[:place]), "".join(f"&{query([pair])}" for pair in pairs[place:])


def query(pairs: Iterable[tuple[str, str]]) -> str:
    """A query string sorted by name; commas are escaped, for clients that split the header at them."""
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in sorted(pairs))

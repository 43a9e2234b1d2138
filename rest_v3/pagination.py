"""Pages: `page` and `per_page` in, `first` and `offset` to the graph, totals and links out (wire-facts 3, DECISIONS 7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from rest_v3.requests.values import INTEGER, MAX_INT

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page asked for: one-based number, and its size."""

    number: int
    size: int

    @property
    def offset(self) -> int:
        """How many entries come before it; past every list when the number is beyond a GraphQL Int."""
        return min((self.number - 1) * self.size, MAX_INT)


FIRST_PAGE = PageRequest(1, DEFAULT_PAGE_SIZE)


def read_page_request(sent: Mapping[str, Any]) -> PageRequest:
    """The page that was asked for. Whatever is no positive number counts as not sent; more than 100 a page is 100."""
    if "page" not in sent and "per_page" not in sent:
        return FIRST_PAGE
    size = _read_positive(sent.get("per_page"), DEFAULT_PAGE_SIZE)
    return PageRequest(_read_positive(sent.get("page"), 1), min(size, MAX_PAGE_SIZE))


def _read_positive(raw: Any, default: int) -> int:
    if isinstance(raw, str):
        raw = raw.strip()
        # More digits than fit: a page that far is as empty as the last one that can be named.
        if raw.isascii() and raw.isdigit() and len(raw) > 9:
            return int(raw) if len(raw) <= 18 else MAX_INT
        raw = int(raw) if INTEGER.fullmatch(raw) else default
    if isinstance(raw, bool) or not isinstance(raw, int) or raw <= 0:
        return default
    return raw


def build_headers(
    page: PageRequest, *, total: int | None, has_more: bool, url: str, filters: Sequence[tuple[str, str]]
) -> list[tuple[bytes, bytes]]:
    """The paging headers of a list.

    `total` is None where counting would cost the whole history: then `has_more` says whether a page follows, and neither
    totals nor a last page are told. `url` is the list's address without its query, `filters` the known parameters.
    """
    if total is not None:
        pages = -(-total // page.size)
        has_more = page.number < pages
    previous_page = page.number - 1 or None
    next_page = page.number + 1 if has_more else None
    paging_headers = [
        (b"x-page", b"%d" % page.number),
        (b"x-per-page", b"%d" % page.size),
        (b"x-next-page", b"%d" % next_page if next_page else b""),
        (b"x-prev-page", b"%d" % previous_page if previous_page else b""),
    ]
    link_targets = [("prev", previous_page), ("next", next_page), ("first", 1)]
    if total is not None:
        paging_headers += [(b"x-total", b"%d" % total), (b"x-total-pages", b"%d" % pages)]
        link_targets.append(("last", pages))
    head, tail = _split_query(filters, page.size)
    links = ", ".join([f'<{url}?{head}{number}{tail}>; rel="{relation}"' for relation, number in link_targets if number is not None])
    paging_headers.append((b"link", links.encode("ascii")))
    return paging_headers


def _split_query(filters: Sequence[tuple[str, str]], size: int) -> tuple[str, str]:
    """A page's query, what stands before its number and what behind it: the links of a list differ in nothing else."""
    if not filters:
        return "page=", f"&per_page={size}"
    pairs = sorted([*filters, ("page", ""), ("per_page", str(size))])
    number_index = pairs.index(("page", "")) + 1
    return encode_query(pairs[:number_index]), "".join(f"&{encode_query([pair])}" for pair in pairs[number_index:])


def encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    """A query string sorted by name; commas are escaped, for clients that split the header at them."""
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in sorted(pairs))

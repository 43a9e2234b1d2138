"""Pagination: `page` and `per_page` to `first` and `offset`; totals and links in headers (docs/wire-facts.md 3, docs/decisions.md 7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from rest_v3.requests.values import INTEGER, MAX_INT

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class PageRules:
    """How a list is divided into pages: the number of the first page, the maximum size, and whether headers describe the page."""

    first_number: int = 1
    max_size: int = MAX_PAGE_SIZE
    has_headers: bool = True


PAGE_RULES = PageRules()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A requested page: its number, from `first_number`, and its size."""

    number: int
    size: int
    first_number: int = 1

    @property
    def offset(self) -> int:
        """Number of entries before it; past every list when the number exceeds a GraphQL Int."""
        return min((self.number - self.first_number) * self.size, MAX_INT)


FIRST_PAGE = PageRequest(1, DEFAULT_PAGE_SIZE)


def read_page_request(sent: Mapping[str, Any], rules: PageRules = PAGE_RULES) -> PageRequest:
    """The requested page. Values that are not positive numbers are ignored; sizes above the maximum become the maximum."""
    if "page" not in sent and "per_page" not in sent and rules is PAGE_RULES:
        return FIRST_PAGE
    size = _read_positive(sent.get("per_page"), DEFAULT_PAGE_SIZE)
    return PageRequest(_read_positive(sent.get("page"), rules.first_number), min(size, rules.max_size), rules.first_number)


def _read_positive(raw: Any, default: int) -> int:
    if isinstance(raw, str):
        raw = raw.strip()
        # The number has too many digits: return the last page that can be requested, which is empty as well.
        if raw.isascii() and raw.isdigit() and len(raw) > 9:
            return int(raw) if len(raw) <= 18 else MAX_INT
        raw = int(raw) if INTEGER.fullmatch(raw) else default
    if isinstance(raw, bool) or not isinstance(raw, int) or raw <= 0:
        return default
    return raw


def build_headers(
    page: PageRequest, *, total: int | None, has_more: bool, url: str, filters: Sequence[tuple[str, str]]
) -> list[tuple[bytes, bytes]]:
    """The pagination headers of a list.

    `total` is None where counting would read the whole history: then `has_more` says whether a page follows, and totals and the last page
    are left out. `url` is the address of the list without its query, `filters` are the known parameters.
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
    """The query string of a page, before and after its number: the links of a list differ only in the number."""
    if not filters:
        return "page=", f"&per_page={size}"
    pairs = sorted([*filters, ("page", ""), ("per_page", str(size))])
    number_index = pairs.index(("page", "")) + 1
    return encode_query(pairs[:number_index]), "".join(f"&{encode_query([pair])}" for pair in pairs[number_index:])


def encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    """A query string sorted by name. Commas are escaped for clients that split the Link header at them."""
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in sorted(pairs))

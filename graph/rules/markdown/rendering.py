"""Renders Markdown (CommonMark, tables, strikethrough, task lists) as sanitized HTML, without access to the database.

`parse` finds the references in a text, such as `#7` or `@dev`; `render` writes the HTML once the caller knows what they link to. Raw HTML
is shown as text. Images other than uploads become links, because loading them would reveal to their host who reads the page. The link of an
image in the repository has the attribute `data-image`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from graph.rules.notes.mentions import MENTION_PATTERN

MAX_CHARACTERS = 100_000
"""Length of the longest text that is parsed; a longer one is shown as it is."""
MAX_NESTING = 20
"""Levels of nested blocks and inline marks; deeper ones are shown as text."""
MAX_REFERENCES = 50
"""Distinct references of a text that become links."""
MAX_CELLS = 5_000
"""Characters `|` in a text; rows of a table could otherwise have millions of empty cells."""
MAX_BRACKETS = 10_000
"""Characters `[` in a text; the time to find links that do not end grows faster than their number."""

USERNAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?"
REFERENCE_PATTERN = re.compile(
    r"(?P<url>(?<!\w)https?://[^\s<>\"'`]{1,2000})"
    rf"|{MENTION_PATTERN.pattern}"
    rf"|(?<![\w@./-])@(?P<username>{USERNAME})"
    r"|(?<![\w./#@=-])(?P<oid>[0-9a-f]{7,40})(?![\w-])"
)
TASK_PATTERN = re.compile(r"\[([ xX])\](?=\s)")
UPLOAD_PATTERN = re.compile(r"/uploads/[0-9a-f]{32}/[A-Za-z0-9._+-]{1,255}")
IMAGE_PATTERN = re.compile(r".*\.(?:png|jpe?g|gif|bmp)", re.IGNORECASE)
IMAGE_FILE_PATTERN = re.compile(r".*\.(?:png|jpe?g|gif|bmp|webp|svg)", re.IGNORECASE)

SUGGESTION_PATTERN = re.compile(r"suggestion(?::-(?P<above>[0-9]{1,2})\+(?P<below>[0-9]{1,2}))?")
"""What follows the fence of a suggestion; with the numbers of lines above and below the commented one that it also replaces."""
SUGGESTION_START_PATTERN = re.compile(r"(?:`{3}|~{3})\s*suggestion")
"""What every text with a suggestion contains; most other texts do not, and need not be parsed."""
MAX_SUGGESTIONS = 20
"""Suggestions of a text; further ones are ordinary code."""

ATTRIBUTES = {
    "a": {"href", "title", "data-image"},
    "code": {"data-suggestion"},
    "img": {"src", "alt", "title"},
    "input": {"disabled", "checked", "aria-label"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
TAGS = set(
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr img input li ol p pre s strong table tbody td th thead tr ul".split()  # noqa: SIM905
)
URL_SCHEMES = {"http", "https", "mailto"}


class Reference(NamedTuple):
    """A reference in a text: `kind` is `#`, `!`, `@` or "" for a commit id; `project` are the path keys, None for the text's project."""

    kind: str
    name: str
    project: tuple[str, str] | None = None


class ReferenceLink(NamedTuple):
    """What a reference links to; `title` is shown on hover."""

    url: str
    title: str


class SuggestedText(NamedTuple):
    """A fenced block `suggestion` of a text: what replaces the commented line, `above` lines before it and `below` after it."""

    above: int
    below: int
    text: str


@dataclass(frozen=True)
class LinkBase:
    """How relative links of a text are resolved: as files at `ref`, in the folder of the file itself.

    `project_url` is the URL of the project's page. `ref` None is the default branch. `folder` is "" for texts that are no files.
    """

    project_url: str
    ref: str | None = None
    folder: str = ""


@dataclass(frozen=True)
class ParsedMarkdown:
    """A parsed text. `tokens` is None for one that is shown as it is."""

    text: str
    tokens: list[Token] | None
    references: list[Reference]


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    return parser.enable(["table", "strikethrough"])


def parse(text: str) -> ParsedMarkdown:
    """Parses a text; its time is bounded by MAX_CHARACTERS.

    >>> parse("Like #7 and `#8`").references
    [Reference(kind='#', name='7', project=None)]
    """
    if len(text) > MAX_CHARACTERS or text.count("|") > MAX_CELLS or text.count("[") > MAX_BRACKETS:
        return ParsedMarkdown(text, None, [])
    tokens = _parser().parse(text)
    found: dict[Reference, None] = {}
    for token in _texts(tokens):
        for match in REFERENCE_PATTERN.finditer(token.content):
            reference = _reference(match)
            if reference is not None and len(found) < MAX_REFERENCES:
                found[reference] = None
    return ParsedMarkdown(text, tokens, list(found))


def render(parsed: ParsedMarkdown, links: Mapping[Reference, ReferenceLink], base: LinkBase) -> str:
    """The sanitized HTML of a parsed text. `links` are the references that the viewer may follow; others stay text."""
    if parsed.tokens is None:
        return f"<pre>{escape(parsed.text, quote=False)}</pre>"
    for number, (fence, _) in enumerate(_suggestion_fences(parsed.tokens)):
        fence.info, fence.attrs = "", {"data-suggestion": str(number)}
    previous: list[Token] = []
    for token in parsed.tokens:
        if token.type == "inline":
            is_item = [each.type for each in previous[-2:]] == ["list_item_open", "paragraph_open"]
            token.children = list(_with_links(token.children or [], links, base, is_item=is_item))
        elif token.type in ("th_open", "td_open") and "style" in token.attrs:
            token.attrs = {"align": str(token.attrs["style"]).removeprefix("text-align:")}
        previous.append(token)
    parser = _parser()
    return _sanitize(parser.renderer.render(parsed.tokens, parser.options, {}))


def may_have_suggestions(text: str) -> bool:
    """Whether a text must be parsed to find its suggestions."""
    return SUGGESTION_START_PATTERN.search(text) is not None


def find_suggestions(text: str) -> list[SuggestedText]:
    """The suggestions of a text, in order. It parses the text, which may take a second, so call it in a thread.

    >>> find_suggestions("Shorter:\\n```suggestion:-1+0\\na = 1\\n```")
    [SuggestedText(above=1, below=0, text='a = 1\\n')]
    """
    if not may_have_suggestions(text):
        return []
    return [
        SuggestedText(int(match["above"] or 0), int(match["below"] or 0), token.content)
        for token, match in _suggestion_fences(parse(text).tokens or [])
    ]


def _suggestion_fences(tokens: list[Token]) -> list[tuple[Token, re.Match[str]]]:
    fences = [(token, SUGGESTION_PATTERN.fullmatch(token.info.strip())) for token in tokens if token.type == "fence"]
    return [(token, match) for token, match in fences if match is not None][:MAX_SUGGESTIONS]


def _sanitize(html: str) -> str:
    return nh3.clean(
        html,
        tags=TAGS,
        clean_content_tags={"script", "style"},
        attributes=ATTRIBUTES,
        set_tag_attribute_values={"input": {"type": "checkbox"}},
        url_schemes=URL_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )


def _texts(tokens: list[Token]) -> Iterator[Token]:
    """The text tokens outside links and code."""
    for token in tokens:
        depth = 0
        for child in token.children or ():
            depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
            if child.type == "text" and depth == 0:
                yield child


def _reference(match: re.Match[str]) -> Reference | None:
    """The reference of a match; None for a URL, which needs no look-up."""
    if match["url"]:
        return None
    if match["username"]:
        return Reference("@", match["username"])
    if match["oid"]:
        return Reference("", match["oid"])
    project = (match["namespace"].lower(), match["path"].lower()) if match["path"] else None
    return Reference(match["sigil"], match["iid"], project)


def _with_links(children: list[Token], links: Mapping[Reference, ReferenceLink], base: LinkBase, *, is_item: bool) -> Iterator[Token]:
    depth = 0
    for position, child in enumerate(children):
        if child.type == "link_open":
            depth += 1
            child.attrs["href"] = _resolve_url(str(child.attrs.get("href", "")), base)
        elif child.type == "link_close":
            depth -= 1
        if child.type == "image":
            yield _image(child, base, in_link=depth > 0)
        elif child.type == "text" and depth == 0:
            task = TASK_PATTERN.match(child.content) if is_item and position == 0 else None
            yield _html(_checkbox(task) if task else "")
            yield _html(_text_html(child.content[task.end() if task else 0 :], links))
        else:
            yield child


def _text_html(text: str, links: Mapping[Reference, ReferenceLink]) -> str:
    def linked(match: re.Match[str]) -> tuple[str, str]:
        """The HTML of a match and what follows the link."""
        if match["url"]:
            url = match["url"].rstrip(".,;:!?)]}*_~")
            return _link(url, url), match["url"][len(url) :]
        reference = _reference(match)
        link = links.get(reference) if reference is not None else None
        return (_link(link.url, match[0], link.title) if link is not None else escape(match[0])), ""

    pieces, start = [], 0
    for match in REFERENCE_PATTERN.finditer(text):
        html, rest = linked(match)
        pieces += [escape(text[start : match.start()]), html, escape(rest)]
        start = match.end()
    return "".join([*pieces, escape(text[start:])])


def _link(url: str, text: str, title: str = "", *, is_image: bool = False) -> str:
    title_attribute = f' title="{escape(title)}"' if title else ""
    image_attribute = ' data-image=""' if is_image else ""
    return f'<a href="{escape(url)}"{title_attribute}{image_attribute}>{escape(text)}</a>'


def _checkbox(task: re.Match[str]) -> str:
    is_done = task[1] != " "
    return f'<input type="checkbox" disabled {"checked" if is_done else ""} aria-label="{"Done" if is_done else "To do"}">'


def _image(image: Token, base: LinkBase, *, in_link: bool) -> Token:
    """An upload as an image, any other image as a link."""
    source, alt = str(image.attrs.get("src", "")), image.content
    url = _resolve_url(source, base)
    if UPLOAD_PATTERN.fullmatch(source) and IMAGE_PATTERN.fullmatch(source):
        return _html(f'<img src="{escape(url)}" alt="{escape(alt)}">')
    if in_link:
        return _html(escape(alt or source))
    is_file = _is_relative(source) and not UPLOAD_PATTERN.fullmatch(source)
    return _html(_link(url, alt or source, is_image=is_file and IMAGE_FILE_PATTERN.fullmatch(urlsplit(source).path) is not None))


def _html(html: str) -> Token:
    return Token("html_inline", "", 0, content=html)


def _is_relative(url: str) -> bool:
    """Whether a URL, which is not that of an upload, names a file of the repository."""
    try:
        return not urlsplit(url).scheme and not url.startswith(("//", "#"))
    except ValueError:
        return False


def _resolve_url(url: str, base: LinkBase) -> str:
    """A URL of a text as an absolute one: an upload, a file of the repository, or what it is already.

    >>> _resolve_url("../b.md#x", LinkBase("http://forge/a/b", "main", "docs"))
    'http://forge/a/b/files/b.md?ref=main#x'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if UPLOAD_PATTERN.fullmatch(url):
        return base.project_url + url
    if not _is_relative(url):
        return url
    path = normpath("/" + (parts.path if parts.path.startswith("/") else f"{base.folder}/{parts.path}")).lstrip("/")
    ref = f"?ref={quote(base.ref, safe='')}" if base.ref else ""
    return f"{base.project_url}/files/{quote(unquote(path))}{ref}" + (f"#{parts.fragment}" if parts.fragment else "")

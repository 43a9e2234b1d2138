"""What names, titles and texts may be."""

import re
import unicodedata
from collections.abc import Iterable

from graph.errors import Invalid, Required, UserError, UserErrors

LONGEST_NAME = 255
LONGEST_TEXT = 1_000_000
"""Characters of a description or a note."""

SURROGATE = re.compile("[\ud800-\udfff]")
LABEL = re.compile(r"[^&?,]+")
NAMESPACE_PATH = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.)")
PROJECT_PATH = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.git)(?<!\.atom)")
DASHES = "\\-\u2010-\u2015"
GROUP_NAME = re.compile(rf"[\w. {DASHES}]+")
PROJECT_NAME = re.compile(rf"\w[\w. {DASHES}]*")

RESERVED = frozenset(
    [
        "admin",
        "all",
        "assets",
        "ci",
        "dashboard",
        "files",
        "groups",
        "help",
        "hooks",
        "issues",
        "merge_requests",
        "new",
        "notes",
        "profile",
        "projects",
        "public",
        "q",
        "repository",
        "s",
        "search",
        "services",
        "snippets",
        "teams",
        "u",
        "unsubscribes",
        "users",
        "api",
        "graphql",
        "ghost",
    ]
)
"""Paths that no user and no group may have: wire facts 8.3, the doors of this service, and who stands for users that are gone."""


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


def labels(names: Iterable[str]) -> list[str]:
    """Titles of labels: without `&`, `?` and `,` (wire facts of labels); blank names are left out.

    Raises UserErrors on `labels`, with an entry for each name that is invalid.
    """
    titles: dict[str, None] = {}
    problems: list[UserError] = []
    for name in filter(str.strip, names):
        try:
            title = clean("labels", name.strip(), longest=LONGEST_NAME)
        except Invalid as error:
            problems.append(Invalid("labels", error.message, value=name))
            continue
        if LABEL.fullmatch(title):
            titles[title] = None
        else:
            problems.append(Invalid("labels", f"{name!r} is invalid", value=name))
    if problems:
        raise UserErrors(problems)
    return list(titles)


def namespace_path(field: str, value: str) -> str:
    """The path of a user or a group (wire facts 8.3 and 9). Of digits only it would be taken for an id. Raises Required, Invalid."""
    path = title(field, value)
    if not NAMESPACE_PATH.fullmatch(path):
        raise Invalid(field, "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.'.")
    if path.isdigit():
        raise Invalid(field, "cannot be digits only")
    if path.lower() in RESERVED:
        raise Invalid(field, f"{path} is a reserved name")
    return path


def group_name(field: str, value: str) -> str:
    """Raises Required, Invalid (wire facts 9)."""
    name = title(field, value)
    if not GROUP_NAME.fullmatch(name):
        raise Invalid(field, "can contain only letters, digits, '_', '.', dash and space.")
    return name


def project_path(field: str, value: str) -> str:
    """The last segment of a project's path, safe in an address and before `.git`. Raises Required, Invalid."""
    path = title(field, value)
    if not PROJECT_PATH.fullmatch(path):
        raise Invalid(field, "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-', end in '.git' or end in '.atom'")
    return path


def project_name(field: str, value: str) -> str:
    """Raises Required, Invalid."""
    name = title(field, value)
    if not PROJECT_NAME.fullmatch(name):
        raise Invalid(field, "can contain only letters, digits, '_', '.', dash and space. It must start with letter, digit or '_'.")
    return name


def path_from(name: str) -> str:
    """The path that a project's name suggests: `Überraschung No. 5!` gives `uberraschung-no.-5`; empty when nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9_.]+", "-", plain).strip("-")


def in_graph(key: str) -> str:
    """The name of a column as the graph spells it.

    >>> in_graph("home_page_url")
    'homePageUrl'
    """
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def storable(value: str) -> bool:
    """Whether both databases can keep the text: no NUL, no half of a surrogate pair."""
    return "\0" not in value and (value.isascii() or SURROGATE.search(value) is None)

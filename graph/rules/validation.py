"""Validation of names, titles, paths and other strings."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graph.errors import Invalid, Required, UserError, UserErrors

MAX_NAME_LENGTH = 255
MAX_STRING_LENGTH = 1_000_000
"""Characters of a description or a note."""

SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
LABEL_PATTERN = re.compile(r"[^&?,]+")
NAMESPACE_PATH_PATTERN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.)")
PROJECT_PATH_PATTERN = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.git)(?<!\.atom)")
DASHES = "\\-\u2010-\u2015"
GROUP_NAME_PATTERN = re.compile(rf"[\w. {DASHES}]+")
PROJECT_NAME_PATTERN = re.compile(rf"\w[\w. {DASHES}]*")

RESERVED_PATHS = frozenset(
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
"""Reserved paths that no user or group may have.

They are those of docs/wire-facts.md 8.3, the URL prefixes of this service, and the ghost user.
"""


def require_value(values: Mapping[str, Any], field: str) -> str:
    """The string of a field that was sent. Raises Required for null."""
    if values[field] is None:
        raise Required(field)
    return str(values[field])


def validate_string(field: str, value: str, *, max_length: int = MAX_STRING_LENGTH) -> str:
    """Return the string if it can be stored.

    Raises Invalid for characters that no database stores (NUL, lone surrogates) and for a string that is too long.
    """
    if not is_storable(value):
        raise Invalid(field, "has characters that cannot be stored")
    if len(value) > max_length:
        raise Invalid(field, f"is too long (maximum is {max_length} characters)")
    return value


def validate_title(field: str, value: str) -> str:
    """A title or name, stripped, not empty, of at most 255 characters. Raises Required, Invalid."""
    stripped = validate_string(field, value.strip(), max_length=MAX_NAME_LENGTH)
    if not stripped:
        raise Required(field)
    return stripped


def validate_count(field: str, value: int) -> int:
    """A number of at least 0. Raises Invalid."""
    if value < 0:
        raise Invalid(field, "must be greater than or equal to 0")
    return value


def validate_all(values: Mapping[str, Any], validate: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The validated values by name. Raises UserErrors with every problem found."""
    validated: dict[str, Any] = {}
    problems: list[UserError] = []
    for name, value in values.items():
        try:
            validated[name] = validate(name, value)
        except UserError as error:
            problems.append(error)
    if problems:
        raise UserErrors(problems)
    return validated


def validate_label_titles(names: Iterable[str]) -> list[str]:
    """Label titles: none contains `&`, `?` or `,` (docs/wire-facts.md, labels); blank names are skipped.

    Raises UserErrors on `labels`, with one entry per invalid name.
    """
    titles: dict[str, None] = {}
    problems: list[UserError] = []
    for name in filter(str.strip, names):
        try:
            title = validate_string("labels", name.strip(), max_length=MAX_NAME_LENGTH)
        except Invalid as error:
            problems.append(Invalid("labels", error.message, value=name))
            continue
        if LABEL_PATTERN.fullmatch(title):
            titles[title] = None
        else:
            problems.append(Invalid("labels", f"{name!r} is invalid", value=name))
    if problems:
        raise UserErrors(problems)
    return list(titles)


def validate_namespace_path(field: str, value: str) -> str:
    """The path of a user or a group (docs/wire-facts.md 8.3 and 9). Raises Required, Invalid.

    A path of digits only is rejected because lookups would parse it as an id.
    """
    path = validate_title(field, value)
    if not NAMESPACE_PATH_PATTERN.fullmatch(path):
        raise Invalid(field, "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.'.")
    if path.isdigit():
        raise Invalid(field, "cannot be digits only")
    if path.lower() in RESERVED_PATHS:
        raise Invalid(field, f"{path} is a reserved name")
    return path


def validate_group_name(field: str, value: str) -> str:
    """The name of a group (docs/wire-facts.md 9). Raises Required, Invalid."""
    name = validate_title(field, value)
    if not GROUP_NAME_PATTERN.fullmatch(name):
        raise Invalid(field, "can contain only letters, digits, '_', '.', dash and space.")
    return name


def validate_project_path(field: str, value: str) -> str:
    """The last segment of a project's path, safe in a URL and before `.git`. Raises Required, Invalid."""
    path = validate_title(field, value)
    if not PROJECT_PATH_PATTERN.fullmatch(path):
        raise Invalid(field, "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-', end in '.git' or end in '.atom'")
    return path


def validate_project_name(field: str, value: str) -> str:
    """The name of a project. Raises Required, Invalid."""
    name = validate_title(field, value)
    if not PROJECT_NAME_PATTERN.fullmatch(name):
        raise Invalid(field, "can contain only letters, digits, '_', '.', dash and space. It must start with letter, digit or '_'.")
    return name


def suggest_path(name: str) -> str:
    """The default path for a project name: `Überraschung No. 5!` becomes `uberraschung-no.-5`.

    May be empty.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9_.]+", "-", plain).strip("-")


def to_camel_case(key: str) -> str:
    """The GraphQL name of a column.

    >>> to_camel_case("home_page_url")
    'homePageUrl'
    """
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def is_storable(value: str) -> bool:
    """Whether both databases can store the string: it contains no NUL and no lone surrogate."""
    return "\0" not in value and (value.isascii() or SURROGATE_PATTERN.search(value) is None)

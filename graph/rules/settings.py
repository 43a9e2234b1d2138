"""Validation of the instance settings, and how other rules read them."""

import fnmatch
import re
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from graph.context import Context
from graph.errors import Invalid
from graph.rules import timestamps, validation
from storage import tables
from storage.tables import settings
from storage.tables.base import MAX_URL_LENGTH
from storage.tables.settings import SETTINGS_ID

MAX_DOMAIN_LENGTH = 253
MAX_DOMAINS = 500
SCHEME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
"""The scheme that an absolute URL begins with (RFC 3986, section 3.1)."""
DOMAIN_PATTERN = re.compile(r"[\w*-]+(\.[\w*-]+)*")


async def load_settings(context: Context) -> tables.Settings:
    """The instance settings, read once per operation."""
    row = await context.rows_by_id(tables.Settings).get(SETTINGS_ID)
    return row or tables.Settings(id=SETTINGS_ID)


async def lock_settings(context: Context) -> tables.Settings:
    """The current settings, locked until the transaction ends."""
    row = await context.first(settings.for_update())
    return row or await context.add(tables.Settings(id=SETTINGS_ID))


def is_domain_allowed(domains: Collection[str] | None, address: str) -> bool:
    """Whether an email address belongs to one of the domains, in which `*` is a wildcard.

    True when no domain is given.
    """
    domain = address.rpartition("@")[2].lower()
    return not domains or any(fnmatch.fnmatchcase(domain, pattern.lower()) for pattern in domains)


def validate_string_setting(field: str, value: str | None) -> str | None:
    return validation.validate_string(field, value or "") or None


def validate_url(field: str, value: str | None) -> str | None:
    """An http or https URL; other schemes could run code in the browser of a user who follows the link.

    Raises Invalid.
    """
    address = validation.validate_string(field, (value or "").strip(), max_length=MAX_URL_LENGTH)
    if not address:
        return None
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or not address.isprintable() or " " in address or "\\" in address:
        raise Invalid(field, "must be a valid URL")
    return address


def validate_link(field: str, value: str | None) -> str | None:
    """A URL that `validate_url` accepts, or one relative to the page that shows it, such as `builds/1`.

    Raises Invalid.
    """
    address = validation.validate_string(field, (value or "").strip(), max_length=MAX_URL_LENGTH)
    if not address or SCHEME_PATTERN.match(address):
        return validate_url(field, value)
    try:
        urlsplit(address)
    except ValueError:
        raise Invalid(field, "must be a valid URL") from None
    if not address.isprintable() or " " in address or "\\" in address:
        raise Invalid(field, "must be a valid URL")
    return address


def validate_url_or_path(field: str, value: str | None) -> str | None:
    """A URL that `validate_url` accepts, or an absolute path on this host. Raises Invalid."""
    path = validation.validate_string(field, (value or "").strip(), max_length=MAX_URL_LENGTH)
    on_this_host = path.startswith("/") and not path.startswith("//")
    if on_this_host and path.isprintable() and " " not in path and "\\" not in path:
        return path
    return validate_url(field, value)


def validate_size(field: str, value: int) -> int:
    if value <= 0:
        raise Invalid(field, "must be greater than 0")
    return value


def validate_levels(field: str, value: list[tables.Visibility] | None) -> list[int] | None:
    return None if value is None else sorted({int(level) for level in value})


def validate_domains(field: str, value: list[str] | None) -> list[str] | None:
    """Strip the domains and remove duplicates. Raises Invalid."""
    if value is None:
        return None
    found = list(dict.fromkeys(validation.validate_string(field, domain.strip(), max_length=MAX_DOMAIN_LENGTH) for domain in value))
    for domain in found:
        if not DOMAIN_PATTERN.fullmatch(domain):
            raise Invalid(field, f"{domain!r} is not a domain")
    if len(found) > MAX_DOMAINS:
        raise Invalid(field, f"has too many entries (maximum is {MAX_DOMAINS})")
    return found


VALIDATORS: dict[str, Callable[[str, Any], Any]] = {
    "default_projects_limit": validation.validate_count,
    "sign_in_text": validate_string_setting,
    "home_page_url": validate_url,
    "default_branch_protection": lambda _, value: int(value),
    "restricted_visibility_levels": validate_levels,
    "max_attachment_size": validate_size,
    "session_expire_delay": validation.validate_count,
    "default_project_visibility": lambda _, value: int(value),
    "default_snippet_visibility": lambda _, value: int(value),
    "restricted_signup_domains": validate_domains,
    "after_sign_out_path": validate_url_or_path,
}
"""Validators of settings; settings without one are booleans."""

NULLABLE_COLUMNS = frozenset(
    ("sign_in_text", "home_page_url", "restricted_visibility_levels", "restricted_signup_domains", "after_sign_out_path")
)
"""Settings that null clears; null leaves every other setting unchanged."""


def validate_columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return the validated column values. Raises UserErrors with every problem found."""
    changed = {key: value for key, value in values.items() if value is not None or key in NULLABLE_COLUMNS}
    return validation.validate_all(
        changed, lambda key, value: VALIDATORS[key](validation.to_camel_case(key), value) if key in VALIDATORS else value
    )


async def update_settings(context: Context, values: dict[str, Any]) -> tables.Settings:
    """Change the settings by the values of `UpdateSettingsInput` that were sent. Raises UserErrors."""
    columns = validate_columns(values)
    row = await lock_settings(context)
    for key, value in columns.items():
        setattr(row, key, value)
    timestamps.touch_if_changed(context, row)
    await context.session.flush()
    return row

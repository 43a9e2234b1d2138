"""Two forms of a value that mean the same: addresses of either server, timestamps."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?\s?(?:Z|UTC|[+-]\d\d:?\d\d)?")
_LINK = re.compile(r"<([^<>]*)>\s*((?:;[^,]*)*)")
"""A URL of a Link header, which has no angle brackets, and its parameters. The time is proportional to the length."""
SERVER = "//SERVER"


class AddressNormalizer:
    """Replaces the addresses of both servers, so that URLs on either are equal."""

    def __init__(self, hosts: Iterable[str], parameters: frozenset[str]) -> None:
        names = "|".join(re.escape(host) for host in sorted(set(hosts), key=lambda host: -len(host)) if host)
        self._pattern = re.compile(
            rf"(?:https?|ssh|git|wss?)://(?:[^\s@/]+@)?(?:{names})(?::\d+)?(?=[/?#\s\"'>)]|$)"
            # Only from the beginning of a name: a long one without an address would be read again from each of its dots.
            rf"|(?<![\w.-])[\w.-]+@(?:{names}):(?!\d+/)",
            re.IGNORECASE,
        )
        self._has_hosts = bool(names)
        self._parameters = parameters

    def normalize(self, text: str) -> str:
        """The string with each address as `//SERVER`; git@HOST:PATH becomes `//SERVER/PATH`."""
        if not self._has_hosts or ("://" not in text and "@" not in text):
            return text
        return self._pattern.sub(lambda match: SERVER + ("/" if match[0].endswith(":") else ""), text)

    def normalize_url(self, url: str) -> str:
        """A URL without the server, without parameters that do not count, with the others in order."""
        address, mark, query = self.normalize(url).partition("?")
        if not mark:
            return address
        pairs = [
            (name, _normalize_timestamp(value)) for name, value in parse_qsl(query, keep_blank_values=True) if name not in self._parameters
        ]
        return f"{address}?{urlencode(sorted(pairs))}"

    def normalize_header(self, name: str, value: str) -> str:
        if name == "link":
            return ", ".join(sorted(f"<{self.normalize_url(url)}>{''.join(rest.split())}" for url, rest in _LINK.findall(value)))
        if name == "location":
            url = self.normalize_url(value)
            return url.removeprefix(SERVER)
        if name == "content-type":
            return "; ".join(part.strip() for part in value.split(";")).lower()
        return self.normalize(value)


def read_timestamp(text: str) -> datetime | None:
    """The time of a timestamp, in UTC; None if the string is none."""
    if len(text) < 16 or len(text) > 40 or _TIMESTAMP.fullmatch(text) is None:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" UTC", "Z").replace("UTC", "Z").replace(" +", "+").replace(" -", "-"))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _normalize_timestamp(value: str) -> str:
    found = read_timestamp(value)
    return value if found is None else found.isoformat()

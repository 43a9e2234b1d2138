"""Connections to LDAP servers. Everything here blocks; `LdapDirectory` runs it in threads."""

import contextlib
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from graph.identity_providers.people import IdentityProviderUnavailable

with warnings.catch_warnings():
    # ldap3 uses names of pyasn1 that are deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import ldap3
    from ldap3.core import exceptions, results
    from ldap3.core.exceptions import LDAPException, LDAPOperationResult
    from ldap3.utils.conv import escape_filter_chars

__all__ = ["LdapConnections", "LdapEntry", "LdapServerOptions", "describe", "escape_filter_chars", "is_utf8", "read", "search"]

PAGE_SIZE = 500
MAX_IDLE_CONNECTIONS = 4
PASSWORD_REJECTIONS = frozenset(
    (
        results.RESULT_INVALID_CREDENTIALS,
        results.RESULT_INAPPROPRIATE_AUTHENTICATION,
        results.RESULT_NO_SUCH_OBJECT,
        results.RESULT_CONSTRAINT_VIOLATION,
        results.RESULT_UNWILLING_TO_PERFORM,
    )
)
"""Results of a bind that say that the password is wrong or the account is locked; others say that the server could not decide."""

CONNECTION_ERRORS = (LDAPException, OSError, LookupError, TypeError, ValueError)
"""What ldap3 raises if a server cannot be reached or its response cannot be decoded."""

T = TypeVar("T")


@dataclass(frozen=True)
class LdapServerOptions:
    """`urls` are tried in their order. Without `verify`, any certificate is accepted. `timeout` is in seconds."""

    urls: tuple[str, ...]
    start_tls: bool = False
    verify: bool = True
    ca_file: Path | None = None
    bind_dn: str = ""
    bind_password: str = field(default="", repr=False)
    timeout: int = 5


class _Tls(ldap3.Tls):  # type: ignore[misc]
    """TLS as Python does it. ldap3's own verification of host names uses a function that Python has removed."""

    def __init__(self, options: LdapServerOptions) -> None:
        super().__init__()
        self._options = options
        self._context: ssl.SSLContext | None = None

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        if self._context is None:
            self._context = _create_tls_context(self._options)
        connection.socket = self._context.wrap_socket(
            connection.socket, server_hostname=connection.server.host, do_handshake_on_connect=do_handshake
        )


def _create_tls_context(options: LdapServerOptions) -> ssl.SSLContext:
    if options.verify:
        return ssl.create_default_context(cafile=options.ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class LdapConnections:
    """Connections of the account that searches; idle ones are used again."""

    def __init__(self, options: LdapServerOptions) -> None:
        self.options = options
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._tls = _Tls(options)

    def run(self, work: Callable[[Any], T]) -> T:
        """Runs `work` with a bound connection. An idle connection that the server has closed is replaced.

        Raises IdentityProviderUnavailable.
        """
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._run_and_keep(connection, work)
            except (exceptions.LDAPCommunicationError, exceptions.LDAPSessionTerminatedByServerError):
                pass
            except CONNECTION_ERRORS as error:
                raise IdentityProviderUnavailable(describe(error)) from None
        connection = self.connect(self.options.bind_dn, self.options.bind_password)
        try:
            return self._run_and_keep(connection, work)
        except CONNECTION_ERRORS as error:
            raise IdentityProviderUnavailable(describe(error)) from None

    def verify_password(self, dn: str, password: str) -> bool:
        """Whether this is the password of an entry. Raises IdentityProviderUnavailable."""
        if not dn or not password or not is_utf8(password):
            # Servers accept a bind without a password, as that of nobody.
            return False
        try:
            connection = self._open(dn, password)
        except LDAPOperationResult as error:
            if error.result in PASSWORD_REJECTIONS:
                return False
            raise IdentityProviderUnavailable(describe(error)) from None
        _close(connection)
        return True

    def connect(self, dn: str, password: str) -> Any:
        """A bound connection. Raises IdentityProviderUnavailable, also for a wrong password."""
        try:
            return self._open(dn, password)
        except LDAPOperationResult as error:
            raise IdentityProviderUnavailable(f"the directory refuses the bind as {dn or 'nobody'}: {describe(error)}") from None

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _open(self, dn: str, password: str) -> Any:
        """Raises LDAPOperationResult if the server refuses the bind, IdentityProviderUnavailable if no server can be reached."""
        problems = []
        for url in self.options.urls:
            connection = self._create_connection(url, dn, password)
            try:
                connection.open()
                if self.options.start_tls and not connection.server.ssl:
                    connection.start_tls()
                connection.bind()
            except LDAPOperationResult:
                _close(connection)
                raise
            except CONNECTION_ERRORS as error:
                _close(connection)
                problems.append(f"{url}: {describe(error)}")
                continue
            return connection
        raise IdentityProviderUnavailable("; ".join(problems))

    def _create_connection(self, url: str, dn: str, password: str) -> Any:
        # ldap3 stores in a server which of its addresses were reached; other threads must not depend on that.
        use_ssl = urlsplit(url).scheme == "ldaps"
        server = ldap3.Server(url, use_ssl=use_ssl, tls=self._tls, get_info=ldap3.NONE, connect_timeout=self.options.timeout)
        return ldap3.Connection(
            server,
            user=dn or None,
            # As bytes, because ldap3 normalizes strings (RFC 4013): a password of invisible characters would become an empty one.
            password=password.encode() or None,
            client_strategy=ldap3.SYNC,
            auto_referrals=False,
            receive_timeout=self.options.timeout,
            raise_exceptions=True,
            read_only=True,
            check_names=False,
            auto_range=True,
        )

    def _run_and_keep(self, connection: Any, work: Callable[[Any], T]) -> T:
        try:
            result = work(connection)
        except BaseException:
            _close(connection)
            raise
        with self._lock:
            if len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return result
        _close(connection)
        return result


@dataclass(frozen=True, slots=True)
class LdapEntry:
    """An entry; the names of its attributes are in lower case."""

    dn: str
    attributes: dict[str, list[bytes]]

    def first(self, name: str) -> str:
        """The first value of an attribute; empty if there is none."""
        values = self.attributes.get(name.lower())
        return values[0].decode("utf-8", "replace") if values else ""

    def all(self, name: str) -> list[str]:
        return [value.decode("utf-8", "replace") for value in self.attributes.get(name.lower(), [])]


def search(
    connection: Any, base: str, search_filter: str, attributes: tuple[str, ...], *, max_entries: int | None = None
) -> list[LdapEntry]:
    """All entries below `base`, or at most `max_entries`. Raises LDAPException, also if the server does not return all of them."""
    entries: list[LdapEntry] = []
    cookie: Any = None
    while True:
        paging = {"size_limit": max_entries} if max_entries else {"paged_size": PAGE_SIZE, "paged_cookie": cookie}
        connection.search(base, search_filter, ldap3.SUBTREE, attributes=list(attributes), **paging)
        entries += _read_entries(connection)
        code = connection.result["result"]
        if code == results.RESULT_SIZE_LIMIT_EXCEEDED and max_entries:
            return entries
        if code != results.RESULT_SUCCESS:
            # A part of the list must not be mistaken for the whole.
            raise exceptions.LDAPExceptionError(f"the search below {base} is incomplete: {connection.result['description']}")
        if max_entries:
            return entries
        # A server that knows no pages returns all entries, or an error, and may return no controls (RFC 2696, section 3).
        cookie = connection.result.get("controls", {}).get("1.2.840.113556.1.4.319", {}).get("value", {}).get("cookie")
        if not cookie:
            return entries


def read(connection: Any, dn: str, search_filter: str, attributes: tuple[str, ...]) -> LdapEntry | None:
    """The entry `dn`, if it exists and meets the filter. Raises LDAPException."""
    try:
        connection.search(dn, search_filter, ldap3.BASE, attributes=list(attributes))
    except (exceptions.LDAPNoSuchObjectResult, exceptions.LDAPInvalidDNSyntaxResult, exceptions.LDAPInvalidDnError):
        return None
    return next(iter(_read_entries(connection)), None)


def _read_entries(connection: Any) -> Iterator[LdapEntry]:
    # Referrals to other servers are in the same list, and are not followed.
    for entry in connection.response or ():
        if entry.get("type") == "searchResEntry":
            yield LdapEntry(entry["dn"], {name.lower(): list(values) for name, values in entry["raw_attributes"].items()})


def is_utf8(string: str) -> bool:
    """Whether a string can be sent to a server; one with a lone surrogate cannot."""
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True


def describe(error: Exception) -> str:
    """The reason of an error in one line. The messages of ldap3 and of servers have no passwords."""
    if isinstance(error, LDAPOperationResult):
        return " ".join(f"{error.description} {error.message or ''}".split())
    if not isinstance(error, (LDAPException, OSError)):
        return f"the response cannot be decoded ({type(error).__name__})"
    return " ".join(str(error).split()) or type(error).__name__


def _close(connection: Any) -> None:
    """ldap3 leaves the socket open when the unbind request cannot be sent, or when TLS fails."""
    opened = connection.socket
    with contextlib.suppress(*CONNECTION_ERRORS):
        connection.unbind()
    if opened is not None:
        opened.close()

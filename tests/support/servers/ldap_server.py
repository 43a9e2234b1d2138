"""A small directory for tests of signing in: Debian's slapd, or ldap3's server in memory where that is not installed.

The server in memory suffices for the rules. Tests of the protocol (TLS, pages, attributes that a server makes) need slapd, and are skipped
without it.
"""

import datetime
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from graph.identity_providers.ldap_connections import LdapServerOptions, ldap3
from graph.identity_providers.ldap_directory import LdapDirectory, LdapOptions
from tests.support.database.databases import free_port

SUFFIX = "dc=example,dc=org"
PEOPLE = f"ou=people,{SUFFIX}"
GROUPS = f"ou=groups,{SUFFIX}"
ADMIN_DN = f"cn=admin,{SUFFIX}"
ADMIN_PASSWORD = "directory secret"
PASSWORD = "correct horse"
MANAGE_REFERRALS = "2.16.840.1.113730.3.4.2"
"""The control that changes a referral instead of following it (RFC 3296)."""
SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/local/libexec:/usr/bin")
SCHEMAS = Path("/etc/ldap/schema")

HAS_SLAPD = SLAPD is not None and SCHEMAS.is_dir() and os.environ.get("FORGEFRONT_TEST_LDAP") != "memory"
"""FORGEFRONT_TEST_LDAP=memory runs the tests as if slapd were not installed."""
needs_slapd = pytest.mark.skipif(not HAS_SLAPD, reason="NOT RUN: LDAP against a real server (apt-get install slapd)")


@dataclass
class LdapServer:
    """A running slapd. Everybody whom `add_person` adds has the password PASSWORD."""

    port: int
    tls_port: int
    ca_file: Path

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    def options(self, **changes: Any) -> LdapServerOptions:
        return LdapServerOptions(**{"urls": (self.url,), "bind_dn": ADMIN_DN, "bind_password": ADMIN_PASSWORD, "timeout": 3, **changes})

    @contextmanager
    def directory(self, *, server: dict[str, Any] | None = None, **changes: Any) -> Iterator[LdapDirectory]:
        directory = LdapDirectory(LdapOptions(**{"server": self.options(**server or {}), "base": PEOPLE, **changes}))
        try:
            yield directory
        finally:
            directory.close()

    def add_person(self, uid: str, **attributes: Any) -> str:
        """Adds a person and returns the DN."""
        dn = f"uid={attributes.pop('rdn', uid)},{PEOPLE}"
        values = {"uid": uid, "cn": uid.title(), "sn": "S", "mail": f"{uid}@example.org", "userPassword": PASSWORD, **attributes}
        self._change(lambda connection: connection.add(dn, ["person", "organizationalPerson", "inetOrgPerson"], values))
        return dn

    def add_group(self, name: str, *members: str) -> str:
        dn = f"cn={name},{GROUPS}"
        self._change(lambda connection: connection.add(dn, ["groupOfNames"], {"member": list(members) or [ADMIN_DN]}))
        return dn

    @contextmanager
    def referral(self, dn: str, url: str) -> Iterator[None]:
        """An entry that refers to another server, until the end of the block."""
        self._change(lambda connection: connection.add(dn, ["referral", "extensibleObject"], {"ref": url}))
        yield
        self._change(lambda connection: connection.delete(dn, controls=[(MANAGE_REFERRALS, True, None)]))

    def set_members(self, group: str, *members: str) -> None:
        replacement = {"member": [(ldap3.MODIFY_REPLACE, list(members) or [ADMIN_DN])]}
        self._change(lambda connection: connection.modify(group, replacement))

    def rename(self, dn: str, rdn: str) -> None:
        self._change(lambda connection: connection.modify_dn(dn, rdn))

    def clear(self) -> None:
        """Deletes all people and groups."""

        def work(connection: Any) -> None:
            connection.search(SUFFIX, "(|(objectClass=person)(objectClass=groupOfNames)(objectClass=posixGroup))", attributes=[])
            for dn in [entry["dn"] for entry in connection.response]:
                connection.delete(dn)

        self._change(work)

    def delete(self, dn: str) -> None:
        self._change(lambda connection: connection.delete(dn))

    def _change(self, work: Any) -> None:
        with ldap3.Connection(ldap3.Server(self.url, get_info=ldap3.NONE), ADMIN_DN, ADMIN_PASSWORD, raise_exceptions=True) as connection:
            work(connection)


@dataclass
class MemoryLdapServer(LdapServer):
    """ldap3's server in memory, behind the same client."""

    server: Any

    @property
    def url(self) -> str:
        return "ldap://memory"

    @contextmanager
    def directory(self, *, server: dict[str, Any] | None = None, **changes: Any) -> Iterator[LdapDirectory]:
        with super().directory(server=server, **changes) as directory:
            create_connection = directory.connections._create_connection

            def create(url: str, dn: str, password: str) -> Any:
                return self._connect(dn, password.encode()) if url == self.url else create_connection(url, dn, password)

            vars(directory.connections)["_create_connection"] = create
            yield directory

    def clear(self) -> None:
        connection = self._connect(ADMIN_DN, ADMIN_PASSWORD)
        self.server.dit.clear()
        connection.strategy.add_entry(ADMIN_DN, {"userPassword": ADMIN_PASSWORD, "objectClass": ["organizationalRole"]})
        for dn in (PEOPLE, GROUPS):
            connection.strategy.add_entry(dn, {"objectClass": ["organizationalUnit"]})

    def _change(self, work: Any) -> None:
        with self._connect(ADMIN_DN, ADMIN_PASSWORD) as connection:
            work(connection)

    def _connect(self, dn: str, password: str | bytes) -> Any:
        return ldap3.Connection(self.server, dn, password, client_strategy=ldap3.MOCK_SYNC, raise_exceptions=True, check_names=False)


@contextmanager
def run_slapd(folder: Path) -> Iterator[LdapServer]:
    """Runs slapd in the folder on ports of its own; it also accepts TLS and StartTLS, with a certificate for localhost.

    As Active Directory does, it accepts a bind with a name and no password, as that of nobody.
    """
    assert SLAPD is not None
    (folder / "db").mkdir()
    write_certificate(folder)
    schemas = "\n".join(f"include {SCHEMAS}/{name}.schema" for name in ("core", "cosine", "inetorgperson", "nis"))
    (folder / "slapd.conf").write_text(
        f"{schemas}\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {folder}/pid\nsizelimit 100\nallow bind_anon_cred\n"
        f"TLSCACertificateFile {folder}/ca.pem\nTLSCertificateFile {folder}/cert.pem\nTLSCertificateKeyFile {folder}/key.pem\n"
        f'database mdb\nmaxsize 10485760\nsuffix "{SUFFIX}"\nrootdn "{ADMIN_DN}"\nrootpw "{ADMIN_PASSWORD}"\ndirectory {folder}/db\n'
        "access to attrs=userPassword by anonymous auth by * none\naccess to * by users read by anonymous auth\n"
    )
    (folder / "data.ldif").write_text(
        f"dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n\n"
        f"dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n\ndn: {GROUPS}\nobjectClass: organizationalUnit\nou: groups\n"
    )
    subprocess.run(["/usr/sbin/slapadd", "-f", folder / "slapd.conf", "-l", folder / "data.ldif"], check=True, capture_output=True)
    server = LdapServer(free_port(), free_port(), folder / "ca.pem")
    urls = f"ldap://127.0.0.1:{server.port} ldaps://127.0.0.1:{server.tls_port}"
    process = subprocess.Popen(
        [SLAPD, "-f", folder / "slapd.conf", "-h", urls, "-d", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for_port(server.port)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _wait_for_port(port: int) -> None:
    for _ in range(200):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("slapd does not listen")


def write_certificate(folder: Path) -> None:
    """Writes ca.pem, and cert.pem with key.pem for localhost, but not for 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)

    def make(name: str, issuer: str, key: Any, signer: Any, *, is_ca: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(days=1),
            now + datetime.timedelta(days=1),
        )
        builder = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        return builder.sign(signer, hashes.SHA256())

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(make("ca.test", "ca.test", ca_key, ca_key, is_ca=True).public_bytes(pem))
    (folder / "cert.pem").write_bytes(make("localhost", "ca.test", key, ca_key, is_ca=False).public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapServer]:
    if not HAS_SLAPD:
        yield MemoryLdapServer(0, 0, Path("/absent"), ldap3.Server("memory", get_info=ldap3.NONE))
        return
    with run_slapd(tmp_path_factory.mktemp("slapd")) as server:
        yield server


@pytest.fixture
def ldap(slapd: LdapServer) -> LdapServer:
    """The directory of the module, empty."""
    slapd.clear()
    return slapd

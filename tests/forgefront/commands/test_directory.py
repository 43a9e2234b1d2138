"""`forgefront directory check` and `forgefront admin user sign-in-link`."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph.rules.external_accounts import directory_sync
from storage.secrets import digest_token
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.servers.ldap_server import ADMIN_DN, ADMIN_PASSWORD, GROUPS, PASSWORD, PEOPLE, LdapServer, ldap, needs_slapd, slapd
from tests.support.servers.oidc_provider import run_oidc_provider

__all__ = ["ldap", "slapd"]
pytestmark = pytest.mark.usefixtures("isolated_environment")

Check = Callable[..., str]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Runs the command with settings, and returns its output."""

    def run(*arguments: str, code: int = 0, **settings: Any) -> str:
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(f"FORGEFRONT_{name.upper()}", str(value))
            result = CommandRunner(tmp_path / "data")("directory", "check", *arguments, code=code)
        assert not (tmp_path / "data").exists()
        return result.output

    return run


@needs_slapd
class TestDirectory:
    def settings(self, ldap: LdapServer, **changes: Any) -> dict[str, Any]:
        valid = {"ldap_url": ldap.url, "ldap_base": PEOPLE, "ldap_bind_dn": ADMIN_DN, "ldap_bind_password": ADMIN_PASSWORD}
        return {**valid, **changes}

    def test_that_is_right_shows_what_people_get(self, check: Check, ldap: LdapServer) -> None:
        dn = ldap.add_person("ada")
        ldap.add_person("bob")
        devs, roots = ldap.add_group("devs", dn), ldap.add_group("roots")
        settings = self.settings(
            ldap,
            ldap_url=f"ldaps://localhost:{ldap.tls_port}",
            ldap_ca_file=ldap.ca_file,
            ldap_groups=f"tools:developer={devs}",
            ldap_admin_group=roots,
        )
        output = check("--login", "ADA", **settings)
        assert f"ADA is {dn}: username ada, name Ada, email address ada@example.org, id {dn}" in output
        assert "ADA gets developer in tools" in output
        assert f"2 people below {PEOPLE}; group {devs} with 1 people; group {roots} with 0 people; login ADA" in output
        assert output.endswith("no problems\n") and "not encrypted" not in output and ADMIN_PASSWORD not in output
        report = json.loads(check("--json", **settings))
        assert report["ok"] is True and len(report["checked"]) == 4

    def test_mistakes_are_explained(self, check: Check, ldap: LdapServer, closed_port: int) -> None:
        ldap.add_person("ada")
        ldap.add_person("bob")
        tls = f"ldaps://127.0.0.1:{ldap.tls_port}"
        mistakes = {
            "check FORGEFRONT_LDAP_URL, and whether this host": {"ldap_url": f"ldap://127.0.0.1:{closed_port}"},
            "check FORGEFRONT_LDAP_BIND_DN and": {"ldap_bind_password": "wrong one"},
            "use the name that is in the certificate, and set FORGEFRONT_LDAP_CA_FILE": {"ldap_url": tls},
            "finds nobody": {"ldap_user_filter": "(objectClass=posixAccount)"},
            "people cannot be listed: noSuchObject": {"ldap_base": "ou=absent,dc=example,dc=org"},
            "nobody has an attribute for the username": {"ldap_login_attributes": "sAMAccountName"},
            "1 people have the id of somebody else": {"ldap_id_attribute": "sn"},
            "there is no such group": {"ldap_admin_group": f"cn=absent,{GROUPS}"},
        }
        for message, changes in mistakes.items():
            output = check(code=1, **self.settings(ldap, **changes))
            assert message in output and "wrong one" not in output, output
            assert output.endswith("\n1 problem\n") and "WRONG  directory: " in output and "       → " in output
        assert "is not encrypted" in check(**self.settings(ldap))
        assert "nobody can sign in with this login" in check("--login", "*", code=1, **self.settings(ldap))
        # The next server is used while one is down.
        output = check(code=1, **self.settings(ldap, ldap_url=f"ldap://127.0.0.1:{closed_port},{ldap.url}"))
        assert "2 people below" in output and PASSWORD not in output
        assert "there is no file" in check(code=2, **self.settings(ldap, ldap_ca_file="/absent.pem"))


class TestAccounts:
    """Which accounts the next comparison with the directory would block."""

    @pytest.fixture(autouse=True)
    def settings(self, isolated_environment: None, ldap: LdapServer, monkeypatch: pytest.MonkeyPatch) -> None:
        values = {"ldap_url": ldap.url, "ldap_base": PEOPLE, "ldap_bind_dn": ADMIN_DN, "ldap_bind_password": ADMIN_PASSWORD}
        for name, value in values.items():
            monkeypatch.setenv(f"FORGEFRONT_{name.upper()}", value)

    def test_are_listed_with_what_to_do_and_nothing_changes(self, cli: CommandRunner, ldap: LdapServer) -> None:
        identities = {"ada": ldap.add_person("ada"), "old": f"uid=old,{PEOPLE}", "away": f"uid=away,{PEOPLE}", "local": None}
        for name, dn in identities.items():
            identity = ["--provider", "ldapmain", "--extern-uid", dn] if dn else []
            cli("admin", "user", "create", name, "--email", f"{name}@example.org", "--no-password", *identity)
        cli("admin", "user", "block", "away")
        before = cli.json("admin", "user", "list")
        output = cli("directory", "check", code=1).output
        # Somebody who is blocked already loses nothing.
        assert f"block  old: uid=old,{PEOPLE}: the directory has nobody with this identity\n" in output and "away" not in output
        assert "WRONG  accounts: ldapmain: the next comparison with the directory would block 1 accounts\n       → correct" in output
        report = json.loads(cli("directory", "check", "--json", code=1).stdout)
        reason = "the directory has nobody with this identity"
        listed = {"username": "old", "provider": "ldapmain", "uid": f"uid=old,{PEOPLE}", "reason": reason}
        assert report["would_block"] == {"count": 1, "accounts": [listed]} and report["ok"] is False
        assert "FORGEFRONT_LDAP_BASE" in report["problems"][0]["remedy"]
        assert cli.json("admin", "user", "list") == before
        ldap.add_person("old")
        report = json.loads(cli("directory", "check", "--json").stdout)
        assert report["would_block"]["count"] == 0 and "2 accounts with a person in the directory" in report["checked"]

    def test_a_directory_with_none_of_them_is_a_mistake_of_the_configuration(self, cli: CommandRunner, ldap: LdapServer) -> None:
        ldap.add_person("stranger")
        for number in range(directory_sync.MIN_DOUBTFUL_BLOCKS):
            identity = "--provider", "ldapmain", "--extern-uid", f"uid=u{number},dc=elsewhere"
            cli("admin", "user", "create", f"u{number}", "--email", f"u{number}@example.org", "--no-password", *identity)
        output = cli("directory", "check", code=1).output
        assert "none of the 5 accounts with identities of it is in the directory, so that comparisons change nothing" in output
        assert output.count("block  u") == 5


class TestProvider:
    def test_is_asked_for_its_metadata_and_keys(self, check: Check) -> None:
        with run_oidc_provider("http://127.0.0.1:8080/-/sign_in") as issuer:
            output = check(oidc_issuer=issuer, oidc_client_id="forgefront")
            assert f"checked: metadata of {issuer}; keys of the provider\nno problems\n" in output
            assert "redirect URI http://127.0.0.1:8080/-/sign_in" in output
            output = check(oidc_issuer=f"{issuer}/", oidc_client_id="forgefront", code=1)
            assert (
                f"the issuer in the provider's metadata is {issuer}, not {issuer}/" in output
                and "must be exactly the issuer in the provider's metadata" in output
            )
        assert "does not respond" in check(oidc_issuer=issuer, oidc_client_id="forgefront", code=1)

    def test_that_is_absent_is_noted(self, check: Check) -> None:
        assert "neither a directory nor a provider is configured" in check()
        assert "there is no directory to look the login up in" in check("--login", "ada", code=1)


class TestSignInLinks:
    def test_are_printed_and_only_their_digest_is_stored(self, cli: CommandRunner) -> None:
        cli("admin", "user", "create", "ada", "--email", "ada@example.org", "--no-password")
        url = cli("admin", "user", "sign-in-link", "ada").stdout.strip()
        base, _, code = url.partition("#link=")
        assert base == "http://127.0.0.1:8080/-/sign_in"
        with sqlite3.connect(cli.data / "forgefront.db") as connection:
            assert connection.execute("SELECT digest FROM sign_in_links").fetchall() == [(digest_token(code),)]
        connection.close()
        assert cli.json("admin", "user", "sign-in-link", "ada", "--hours", "1")["url"] != url
        assert "--hours: must be between 1 and 720" in cli("admin", "user", "sign-in-link", "ada", "--hours", "721", code=1).stderr
        cli("admin", "user", "create", "bob", "--email", "bob@example.org", "--no-password")
        several = cli("admin", "user", "sign-in-link", "ada", "bob").stdout.splitlines()
        assert [line.partition(f"\t{base}#link=")[0] for line in several] == ["ada", "bob"]
        assert [link["username"] for link in cli.json("admin", "user", "sign-in-link", "ada", "bob")] == ["ada", "bob"]
        cli("admin", "user", "block", "ada")
        assert "The user is blocked" in cli("admin", "user", "sign-in-link", "ada", code=1).stderr

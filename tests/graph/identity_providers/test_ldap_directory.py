"""The LDAP directory, against slapd: searches, passwords, groups, TLS, and what goes wrong."""

import asyncio
import socket
import threading

import pytest

from graph.identity_providers.people import AccountPolicy, GroupGrant, GroupMapping, IdentityProviderUnavailable
from storage.tables import AccessLevel
from storage.tables.accounts.identities import normalize_uid
from tests.support.servers.ldap_server import ADMIN_DN, GROUPS, PASSWORD, PEOPLE, LdapServer, ldap, needs_slapd, slapd

__all__ = ["ldap", "slapd"]
pytestmark = needs_slapd


def mapping_of(*groups: str) -> AccountPolicy:
    return AccountPolicy(GroupMapping(tuple(GroupGrant("tools", AccessLevel.DEVELOPER, group) for group in groups)))


class TestLogins:
    async def test_are_found_by_their_attributes_and_verified_by_a_bind(self, ldap: LdapServer) -> None:
        dn = ldap.add_person("ada", cn="Ada Lovelace", mail="Ada@Example.org")
        devs = ldap.add_group("devs", dn)
        with ldap.directory(login_attributes=("uid", "mail"), policy=mapping_of(devs, f"cn=absent,{GROUPS}")) as directory:
            found = await directory.find("ADA")
            assert found is not None and found == await directory.find("ada@example.org")
            assert (found.dn, found.person.uid) == (dn, dn)
            assert (found.person.username, found.person.name, found.person.email) == ("ada", "Ada Lovelace", "ada@example.org")
            assert found.person.has_verified_email and found.person.is_active
            assert await directory.verify(found, PASSWORD)
            assert await directory.groups_of(found) == {devs}
            for wrong in ("wrong", "", PASSWORD.upper(), "\0", "\u00ad", "\u200b", "\ud800", f"{PASSWORD}\u00ad"):
                assert not await directory.verify(found, wrong), repr(wrong)
            assert await directory.find("nobody") is None
            assert not await directory.verify(None, PASSWORD)

    async def test_cannot_change_the_filter(self, ldap: LdapServer) -> None:
        ldap.add_person("ada", employeeType="hidden")
        odd = ldap.add_person("o(dd)*\\", rdn="odd", mail="odd@example.org")
        with ldap.directory(user_filter="(&(objectClass=person)(!(employeeType=hidden)))") as directory:
            attacks = (
                "*",
                "a*",
                "ada)(uid=*",
                "*)(|(uid=*",
                "ada)(&",
                "\\2a",
                "ada\0",
                ")(objectClass=*",
                "ada)(employeeType=hidden",
                "\ud800",
            )
            for login in (*attacks, "ada"):
                assert await directory.find(login) is None, login
            found = await directory.find("o(dd)*\\")
            assert found is not None and found.dn == odd

    async def test_that_several_people_have_are_nobodys(self, ldap: LdapServer) -> None:
        for uid in ("ada", "bob", "eve"):
            ldap.add_person(uid, mail="all@example.org")
        with ldap.directory(login_attributes=("uid", "mail")) as directory:
            assert await directory.find("all@example.org") is None
            assert await directory.find("bob") is not None

    async def test_are_identified_by_an_attribute_that_survives_renaming(self, ldap: LdapServer) -> None:
        dn = ldap.add_person("ada")
        with ldap.directory(id_attribute="entryUUID", login_attributes=("mail",)) as directory:
            before = await directory.find("ada@example.org")
            ldap.rename(dn, "uid=countess")
            after = await directory.find("ada@example.org")
            assert before is not None and after is not None
            assert before.person.uid == after.person.uid and len(before.person.uid) == 36
            assert (before.person.former_uid, after.person.former_uid) == (dn, f"uid=countess,{PEOPLE}")


class TestLists:
    async def test_have_everybody_page_by_page_with_groups(self, ldap: LdapServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graph.identity_providers.ldap_connections.PAGE_SIZE", 7)
        people = [ldap.add_person(f"user{number}") for number in range(20)]
        devs, ops = ldap.add_group("devs", people[0], people[13].upper()), ldap.add_group("ops")
        with ldap.directory(policy=mapping_of(devs, ops, f"cn=absent,{GROUPS}")) as directory:
            found = await directory.list_people()
            assert sorted(person.username for person in found) == sorted(f"user{number}" for number in range(20))
            assert {person.username for person in found if person.groups == {devs}} == {"user0", "user13"}
            assert all(not person.groups for person in found if person.username not in ("user0", "user13"))

    async def test_that_are_incomplete_raise(self, ldap: LdapServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server returns at most 100 entries to this reader, even page by page; what is missing must not look deleted."""
        for number in range(102):
            ldap.add_person(f"user{number}")
        reader = ldap.add_person("reader")
        with ldap.directory(server={"bind_dn": reader, "bind_password": PASSWORD}) as directory:
            with pytest.raises(IdentityProviderUnavailable, match="is incomplete"):
                await directory.list_people()
            assert await directory.find("user101") is not None

    async def test_of_a_server_without_pages_have_everybody(self) -> None:
        success = _element(0x0A, b"\0") + _element(0x04, b"") * 2
        names = _element(0x30, _element(0x04, b"uid") + _element(0x31, _element(0x04, b"ada")))
        entry = _element(0x64, _element(0x04, f"uid=ada,{PEOPLE}".encode()) + _element(0x30, names))

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Of a bind and a search; without the list of controls that both may have.
            for operations in ([_element(0x61, success)], [entry, _element(0x65, success)]):
                request = await reader.read(4096)
                # The number of the message follows the length of all, which has more bytes if it is long.
                start = 2 if request[1] < 0x80 else 2 + (request[1] & 0x7F)
                number = request[start : start + 2 + request[start + 1]]
                writer.write(b"".join(_element(0x30, number + operation) for operation in operations))
            writer.close()

        async with await asyncio.start_server(respond, "127.0.0.1") as other:
            server = LdapServer(other.sockets[0].getsockname()[1], 0, None)  # type: ignore[arg-type]
            with server.directory() as directory:
                assert [person.username for person in await directory.list_people()] == ["ada"]


def _element(tag: int, content: bytes) -> bytes:
    """An element of a message (X.690, BER), of less than 128 bytes."""
    return bytes((tag, len(content))) + content


class TestConnections:
    async def test_check_certificates(self, ldap: LdapServer) -> None:
        ldap.add_person("ada")
        valid = f"ldaps://localhost:{ldap.tls_port}", f"ldap://localhost:{ldap.port}"
        invalid = f"ldaps://127.0.0.1:{ldap.tls_port}", f"ldap://127.0.0.1:{ldap.port}"
        for url in (*valid, *invalid):
            start_tls = url.startswith("ldap:")
            with ldap.directory(server={"urls": (url,), "start_tls": start_tls, "ca_file": ldap.ca_file}) as directory:
                if url in valid:
                    found = await directory.find("ada")
                    assert found is not None and await directory.verify(found, PASSWORD), url
                else:
                    with pytest.raises(IdentityProviderUnavailable, match=r"(?i)certificate"):
                        await directory.find("ada")
            rejected = pytest.raises(IdentityProviderUnavailable, match=r"(?i)certificate")
            with ldap.directory(server={"urls": (url,), "start_tls": start_tls}) as directory, rejected:
                await directory.find("ada")
            with ldap.directory(server={"urls": (url,), "start_tls": start_tls, "verify": False}) as directory:
                assert await directory.find("ada") is not None

    async def test_that_the_server_has_closed_are_replaced(self, ldap: LdapServer) -> None:
        ldap.add_person("ada")
        with ldap.directory() as directory:
            assert await directory.find("ada") is not None
            (idle,) = directory.connections._idle
            idle.socket.shutdown(socket.SHUT_RDWR)
            assert await directory.find("ada") is not None

    async def test_use_the_next_server_and_say_why_none_can_be_used(self, ldap: LdapServer, closed_port: int) -> None:
        ldap.add_person("ada")
        closed = f"ldap://127.0.0.1:{closed_port}"
        with ldap.directory(server={"urls": (closed, ldap.url)}) as directory:
            found = await directory.find("ada")
            assert found is not None and await directory.verify(found, PASSWORD)
        with ldap.directory(server={"urls": (closed,)}) as directory:
            requests = (lambda: directory.find("ada"), lambda: directory.verify(found, PASSWORD), directory.list_people)
            # Failures of earlier requests do not hide the reason.
            for request in (*requests, *requests):
                with pytest.raises(IdentityProviderUnavailable, match="refused"):
                    await request()
        with ldap.directory(server={"bind_password": "not this one"}) as directory:
            with pytest.raises(IdentityProviderUnavailable) as caught:
                await directory.find("ada")
            assert f"refuses the bind as {ADMIN_DN}" in str(caught.value) and "not this one" not in str(caught.value)
        assert "directory secret" not in repr(ldap.options())

    async def test_to_something_else_than_a_directory_say_so(self) -> None:
        responses = [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            bytes((0x30, 0x0C, 0x02, 0x01, 0x02, 0x60, 0x07, 0x02, 0x01, 0x03, 0x04, 0x00, 0x80, 0x00)),
        ]

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            writer.write(responses[0])
            writer.close()

        async with await asyncio.start_server(respond, "127.0.0.1") as other:
            server = LdapServer(other.sockets[0].getsockname()[1], 0, None)  # type: ignore[arg-type]
            while responses:
                with server.directory() as directory, pytest.raises(IdentityProviderUnavailable) as caught:
                    await directory.find("ada")
                assert f"{server.url}: " in str(caught.value)
                del responses[0]
        assert "cannot be decoded" in str(caught.value)

    async def test_follow_no_referrals(self, ldap: LdapServer) -> None:
        """Another server would receive the password of a person, and could say whatever it wants."""
        ldap.add_person("bob")
        away = f"uid=ada,{PEOPLE}"
        with socket.create_server(("127.0.0.1", 0)) as elsewhere, ldap.directory() as directory:
            elsewhere.setblocking(False)
            with ldap.referral(away, f"ldap://127.0.0.1:{elsewhere.getsockname()[1]}/{away}"):
                assert await directory.find("ada") is None
                assert [person.username for person in await directory.list_people()] == ["bob"]
                assert not directory.connections.verify_password(away, PASSWORD)
            with pytest.raises(BlockingIOError):
                elsewhere.accept()

    async def test_that_hang_end_in_time_and_do_not_block_the_event_loop(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            server = LdapServer(silent.getsockname()[1], 0, None)  # type: ignore[arg-type]
            with server.directory(server={"timeout": 1}) as directory:
                request = asyncio.create_task(directory.find("ada"))
                ticks = 0
                while not request.done() and ticks < 100:
                    await asyncio.sleep(0.05)
                    ticks += 1
                assert 10 <= ticks < 60
                with pytest.raises(IdentityProviderUnavailable):
                    await request
        assert threading.current_thread() is threading.main_thread()


def test_names_are_compared_without_regard_to_case_and_spaces() -> None:
    same = ("uid=ada,ou=people,dc=example", "UID=Ada, OU=People , dc = example", "uid = ADA,ou=people,dc=EXAMPLE")
    assert {normalize_uid("ldapmain", dn) for dn in same} == {same[0]}
    assert normalize_uid("ldapmain", "cn=Lovelace\\, Ada,dc=x") == "cn=lovelace\\, ada,dc=x"
    assert normalize_uid("openid_connect", "Ada=X, Y") == "Ada=X, Y"
    assert normalize_uid("ldapmain", "5F0c") == "5F0c"

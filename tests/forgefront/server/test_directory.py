"""The service with a directory: its configuration, `POST /session`, and the background task."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from forgefront.app import App
from forgefront.config import Config
from tests.support.servers.ldap_server import ADMIN_DN, ADMIN_PASSWORD, PASSWORD, PEOPLE, LdapServer, ldap, needs_slapd, slapd

__all__ = ["ldap", "slapd"]
WAIT_SECONDS = 20.0


@asynccontextmanager
async def run_app(data: Path, ldap: LdapServer, *, hours_later: int = 0) -> AsyncIterator[httpx.AsyncClient]:
    directory = {"ldap_url": ldap.url, "ldap_base": PEOPLE, "ldap_bind_dn": ADMIN_DN, "ldap_bind_password": ADMIN_PASSWORD}
    config = Config.load(data=data, log_level="error", **directory)
    app = App(config, clock=lambda: datetime.now(UTC) + timedelta(hours=hours_later))
    await app.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge.example") as client:
            yield client
    finally:
        app.begin_shutdown(0)
        await app.stop()


@needs_slapd
async def test_signs_people_in_and_blocks_those_who_are_removed(tmp_path: Path, ldap: LdapServer) -> None:
    dn = ldap.add_person("ada")
    ldap.add_person("bob")
    async with run_app(tmp_path / "data", ldap) as client:
        answers = [await client.post("/api/v3/session", data={"login": "ada", "password": word}) for word in ("wrong", PASSWORD)]
        assert [answer.status_code for answer in answers] == [401, 201]
        token = {"PRIVATE-TOKEN": answers[1].json()["private_token"]}
        assert (await client.get("/api/v3/user", headers=token)).json()["username"] == "ada"
    ldap.delete(dn)
    # The first process may have compared the accounts, and the next run is due ten minutes later.
    async with run_app(tmp_path / "data", ldap, hours_later=1) as client, asyncio.timeout(WAIT_SECONDS):
        while (await client.get("/api/v3/user", headers=token)).status_code != 401:  # noqa: ASYNC110 - the task has no event for its end
            await asyncio.sleep(0.02)

"""The host of this process in the table of hosts: refuses combinations that would lose data, and says whether this host may serve.

A host is a data folder; the server processes that share it are one host. Hosts that serve one instance need PostgreSQL, buckets for
everything that is stored outside of it, and equal keys. A host is alive while one of its processes renews its row, by the clock of the
database.
"""

import asyncio
import hashlib
import hmac
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from time import monotonic

import structlog
from sqlalchemy import func, select, text

from forgefront.config import Config
from forgefront.server.health import NotReadyError
from storage import integrity, migrations
from storage.database.clock import correct_clock, now, read_correction, read_host_clock
from storage.database.engine import Database, DatabaseSession, driver_url
from storage.database.errors import describe_error, is_unavailable
from storage.secrets import TokenCipher, fingerprint_key, write_once
from storage.tables import hosts, schema_compatibility
from storage.tables.hosts import LIVE_SECONDS

IDENTITY_FILE = "host.id"
HEARTBEAT_SECONDS = 5.0
FORGET_SECONDS = 24 * 3600.0
MAX_CLOCK_DIFFERENCE_SECONDS = 10.0
"""A larger difference between the clock of this host and that of the database is an error."""
MIN_CORRECTION_SECONDS = 1.0
"""A smaller difference is not corrected, so that times of a host whose clock is right do not move with the duration of a statement."""
MAX_MEASUREMENT_SECONDS = 2.0
"""A comparison of clocks that takes longer says too little."""

log = structlog.get_logger("hosts")


class HostRefused(Exception):
    """This host may not serve the instance; the message says why and what to do."""


def describe_local_parts(config: Config) -> list[str]:
    """What the configuration stores in the data folder."""
    urls = {"repositories": config.repositories_url, "uploads": config.uploads_url, "artifacts": config.artifacts_url}
    return [name for name, url in urls.items() if not url]


def read_identity(config: Config) -> str:
    """The identity of the host, which all processes with its data folder share; empty before its first start."""
    path = config.data / IDENTITY_FILE
    return path.read_text("ascii").strip() if path.exists() else ""


class HostRegistry:
    """Registers this host. `key` is the secret key, `ssh_keys` the public SSH host keys, if SSH is served."""

    def __init__(self, config: Config, database: Database, key: bytes, ssh_keys: Sequence[bytes] | None = None) -> None:
        self._config = config
        self._database = database
        self._key = key
        self._ssh_key_check = hashlib.sha256(b"\n".join(sorted(ssh_keys))).hexdigest() if ssh_keys is not None else None
        self._local_parts = describe_local_parts(config)
        self._identity = ""
        self._problem: str | None = None
        self._has_wrong_clock = False

    @property
    def is_needed(self) -> bool:
        """Whether another host could use this database. Nobody else has one that is a file in the data folder."""
        if not self._config.uses_sqlite:
            return True
        return not (driver_url(self._config.database_url).database or "").startswith(f"{self._config.data}/")

    async def join(self) -> None:
        """Registers the host. Raises HostRefused."""
        if not self.is_needed:
            return
        self._identity = await asyncio.to_thread(self._create_identity)
        async with self._database.write_session() as session:
            if self._database.dialect == "postgresql":
                # Of hosts that start at the same time, the first may serve.
                await session.execute(text("LOCK TABLE hosts IN EXCLUSIVE MODE"))
            await self._check_stored_tokens(session)
            moment = await self._read_clock(session)
            if problem := await self._find_conflict(session, moment):
                raise HostRefused(problem)
            await session.execute(hosts.delete_older(moment - timedelta(seconds=FORGET_SECONDS)))
            await self._renew(session, moment)
            await session.commit()

    async def run(self) -> None:
        """Renews the row until it is canceled."""
        while self.is_needed:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self.renew()
            except Exception as error:
                if not is_unavailable(error):
                    raise
                log.warning("heartbeat failed", error=describe_error(error))

    async def renew(self) -> None:
        """Renews the row, and finds out whether this host may still serve: one that was thought dead may have been replaced."""
        async with self._database.write_session() as session:
            moment = await self._read_clock(session)
            problem = await self._find_conflict(session, moment) or await self._find_newer_schema(session)
            await self._renew(session, moment)
            await session.commit()
        if problem and problem != self._problem:
            log.error("this host must not serve", problem=problem)
        self._problem = problem

    async def leave(self) -> None:
        """Removes the row. Another process of the host inserts it again."""
        if self._identity:
            async with self._database.write_session() as session:
                await session.execute(hosts.remove(self._identity))
                await session.commit()

    async def check(self) -> None:
        """Raises NotReadyError if this host may not serve."""
        if self._problem:
            raise NotReadyError("this host must not serve beside the others; the server log contains the reason")

    async def _check_stored_tokens(self, session: DatabaseSession) -> None:
        """Raises HostRefused if the key is another one than that of the database: a rotation may have ended since this process read it."""
        if not await integrity.matches_sealed_tokens(session, TokenCipher(self._key)):
            raise HostRefused(
                "the secrets in the database were encrypted with another key. Set FORGEFRONT_SECRET_KEY to the key of the instance,"
                " which its first host has in its environment or in DATA/secret.key."
            )

    async def _find_conflict(self, session: DatabaseSession, moment: datetime) -> str | None:
        """Why this host may not serve beside the live ones; None if it may."""
        key_check = fingerprint_key(self._key)
        for other in [row[0] for row in await session.read(hosts.others(self._identity, moment - timedelta(seconds=LIVE_SECONDS)))]:
            subject = f"the host {other.name} ({other.address}, seen {(moment - other.heartbeat_at).total_seconds():.0f} s ago)"
            if self._config.uses_sqlite:
                return (
                    f"{subject} serves this database too, which is SQLite. Several hosts need PostgreSQL: stop all hosts, dump the instance"
                    " (`forgefront dump`), restore it into another data folder (`forgefront restore --database-url postgresql://…`),"
                    " and set FORGEFRONT_DATABASE_URL on all hosts. For one host, stop the other"
                    f" (it counts as stopped after {LIVE_SECONDS:.0f} s)."
                )
            if local := self._local_parts or list(filter(None, other.local_parts.split(","))):
                owner = "this host" if self._local_parts else "that host"
                variables = ", ".join(f"FORGEFRONT_{name.upper()}_URL" for name in local)
                return (
                    f"{subject} serves this database too, and {owner} has {' and '.join(local)} in its data folder, where the other cannot"
                    f" read them. Set {variables} to s3://… on all hosts, or stop the other host (it counts as stopped after"
                    f" {LIVE_SECONDS:.0f} s)."
                )
            if not hmac.compare_digest(other.key_check, key_check):
                return f"{subject} has another secret key. Set FORGEFRONT_SECRET_KEY to the same value on all hosts."
            if self._ssh_key_check and other.ssh_key_check and self._ssh_key_check != other.ssh_key_check:
                return f"{subject} has other SSH host keys. Set FORGEFRONT_SSH_HOST_KEYS to files with the same keys on all hosts."
        return None

    async def _find_newer_schema(self, session: DatabaseSession) -> str | None:
        """Why this host must not serve although no other excludes it: the database was migrated while it was thought dead."""
        oldest = await session.scalar(schema_compatibility.oldest_revision())
        if oldest is None or await asyncio.to_thread(migrations.is_compatible, oldest):
            return None
        return f"the database was migrated to a revision after {oldest}, which this version does not know. Upgrade this host."

    async def _renew(self, session: DatabaseSession, moment: datetime) -> None:
        row = {
            "identity": self._identity,
            "name": socket.gethostname()[:255],
            "address": f"{self._config.host}:{self._config.port}"[:255],
            "version": version("forgefront")[:64],
            "local_parts": ",".join(self._local_parts),
            "key_check": fingerprint_key(self._key),
            "ssh_key_check": self._ssh_key_check,
            "started_at": moment,
            "heartbeat_at": moment,
        }
        await session.execute(hosts.upsert(self._database.dialect, row))

    async def _read_clock(self, session: DatabaseSession) -> datetime:
        """The time by the clock of the database, from which the times of this process no longer differ then."""
        if self._database.dialect == "sqlite":
            return now()
        before, started = read_host_clock(), monotonic()
        moment: datetime = await session.scalar(select(func.clock_timestamp()))
        seconds = monotonic() - started
        if seconds <= MAX_MEASUREMENT_SECONDS:
            self._compare_clocks(moment - before - timedelta(seconds=seconds / 2))
        return moment

    def _compare_clocks(self, missing: timedelta) -> None:
        """Corrects the times of this process. `missing` is by how much the clock of this host is behind that of the database.

        Leases of builds, for example, are written by one host and compared by another. A large difference is logged once, and again
        after the clock was right.
        """
        if abs((missing - read_correction()).total_seconds()) > MIN_CORRECTION_SECONDS:
            correct_clock(missing if abs(missing.total_seconds()) > MIN_CORRECTION_SECONDS else timedelta())
        is_wrong = abs(missing.total_seconds()) > MAX_CLOCK_DIFFERENCE_SECONDS
        if is_wrong and not self._has_wrong_clock:
            remedy = "synchronize the clocks; until then the service corrects its own times, but not those of files and logs"
            log.error("the clock of this host differs from that of the database", seconds=-round(missing.total_seconds(), 1), remedy=remedy)
        self._has_wrong_clock = is_wrong

    def _create_identity(self) -> str:
        if not read_identity(self._config):
            write_once(self._config.data / IDENTITY_FILE, secrets.token_hex(16).encode())
        return read_identity(self._config)

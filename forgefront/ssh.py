"""Clone, fetch and push over SSH: git's two commands at `ssh://git@HOST:PORT/NAMESPACE/PROJECT.git`, and nothing else.

The key says who it is, whatever the user name; the graph decides who may, anew for each command; the transport runs git. There is no
shell, no terminal, no forwarding and no other subsystem or variable than those named here.
"""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from time import monotonic, perf_counter

import asyncssh
import structlog

from forgefront import ssh_host_keys
from forgefront.git_http import bounded, refusal
from forgefront.logs import REQUEST_ID
from forgefront.ssh_session import Asked, Gone, Session, understood
from graph.errors import Unauthenticated
from graph.git_access import GitAccess, Holder, PublicKey
from storage.database import is_unavailable
from storage.git.pushes import Update, Verdict
from storage.git.transport import Service, Transport

MOST_CONNECTIONS = 1000
MOST_STRANGERS = 200
"""Connections that have not said yet who they are; of more, the oldest has to go."""
MOST_STRANGERS_OF_ONE = 20
"""The same, of one address (of IPv6, of one network of 64 bits)."""
MOST_SESSIONS = 10
"""Commands at once on one connection, as sshd has it."""
MOST_KEYS = 20
"""Keys that a connection may try."""
LOGIN_SECONDS = 30
KEEPALIVE_SECONDS = 15
KEEPALIVES = 3
"""So many without an answer end a connection."""
IDLE_SECONDS = 300.0
"""How long a connection is kept on which no command runs."""
SILENT_SECONDS = {Service.UPLOAD: 60.0, Service.RECEIVE: 300.0}
"""Without a byte either way. Who pushes may think longer, since the client packs what it sends after it has connected."""
SWEEP_SECONDS = 5.0
FINISHING_SECONDS = 1.5
"""What pushes get that came whole before their connections were cut, to be finished and recorded."""

Count = Callable[[str, str, float], None]
"""Takes a command that was served: which, how it ended, and the seconds that it took."""

log = structlog.get_logger("ssh")


class SshDoor:
    """The door, on a listening socket that it closes at the end. `running` is told how many connections there are."""

    def __init__(
        self,
        access: GitAccess,
        transport: Transport,
        listener: socket.socket,
        keys: Sequence[asyncssh.SSHKey],
        *,
        count: Count = lambda command, outcome, seconds: None,
        running: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.access = access
        self.transport = transport
        self.is_stopping = False
        self.lines: set[Line] = set()
        self._strangers: dict[Line, str] = {}
        self._listener = listener
        self._keys = keys
        self._count = count
        self._running = running
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes connections from now on."""
        self._acceptor = await asyncssh.listen(
            sock=self._listener,
            backlog=MOST_STRANGERS,
            server_factory=lambda: Line(self),
            server_host_keys=self._keys,
            server_version="Forgefront",
            config=None,
            # The key alone; what is not named here has no handler that would allow it.
            public_key_auth=True,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            allow_pty=False,
            agent_forwarding=False,
            x11_forwarding=False,
            line_editor=False,
            encoding=None,
            # Packs are compressed already.
            compression_algs=["none"],
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVES,
        )
        self._sweeper = asyncio.create_task(self._sweep())
        for key in self._keys:
            log.info("ssh ready", process=os.getpid(), port=self._listener.getsockname()[1], fingerprint=ssh_host_keys.fingerprint(key))

    def leave_off(self, seconds: float) -> None:
        """Takes nothing new; what runs may end within these seconds. Then connections are cut, and pushes that came whole are finished."""
        if self._draining is not None:
            return
        self.is_stopping = True
        if self._acceptor is not None:
            self._acceptor.close()
        self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._draining = asyncio.create_task(self._drain(seconds))

    async def close(self) -> None:
        """Returns when all that ran has ended, or FINISHING_SECONDS after its time; where nobody called `leave_off`, that is now."""
        self.leave_off(0.0)
        assert self._draining is not None  # noqa: S101 - made by the line above
        await self._draining

    async def _drain(self, seconds: float) -> None:
        for line in list(self.lines):
            if not line.tasks():
                line.leave("The service is stopping.")
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=seconds)
        # The last words of a command are still on their way to its client.
        await asyncio.sleep(0.05)
        tasks = self._tasks()
        for line in list(self.lines):
            line.leave("The service is stopping.")
        if tasks:
            await asyncio.wait(tasks, timeout=FINISHING_SECONDS)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for line in self.lines for task in line.tasks()}

    def admits(self, line: "Line", address: str) -> bool:
        """Whether a connection may stay. One more stranger than there may be drives the oldest away."""
        place = _place(address)
        if self.is_stopping or len(self.lines) >= MOST_CONNECTIONS or Counter(self._strangers.values())[place] >= MOST_STRANGERS_OF_ONE:
            return False
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            self._strangers.pop(oldest)
            oldest.cut()
        self._strangers[line] = place
        self.lines.add(line)
        self._running(len(self.lines))
        return True

    def knows(self, line: "Line") -> None:
        """The connection has said who it is."""
        self._strangers.pop(line, None)

    def forget(self, line: "Line") -> None:
        self._strangers.pop(line, None)
        self.lines.discard(line)
        self._running(len(self.lines))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for line in list(self.lines):
                line.sweep()

    async def run(self, session: Session, key: PublicKey) -> None:
        """Serves one command, to its end."""
        started, request_id = perf_counter(), os.urandom(12).hex()
        REQUEST_ID.set(request_id)
        asked = understood(session.command) if session.command is not None else None
        command = asked.service.value if asked else "shell" if session.command is None else "other"
        status, text, outcome = 1, "", "refused"
        holder: Holder | None = None
        try:
            holder = await self.access.holder(key)
            if holder is None:
                raise Unauthenticated
            if session.command is None:
                text = f"Hi {holder.username}! Your key is fine, but there is no shell access here: use git clone, git fetch and git push."
            elif asked is None:
                text = "ERROR: Only git-upload-pack and git-receive-pack of NAMESPACE/PROJECT.git can be run here."
            else:
                await self._converse(session, asked, key, request_id)
                status, outcome = 0, "done"
        except Exception as error:
            outcome, text = ("gone", "") if session.gone or isinstance(error, Gone) else _explained(error)
        finally:
            seconds = perf_counter() - started
            if session.gone and outcome == "done":
                outcome = "gone"
            self._count(command, outcome, seconds)
            log.info(
                "ssh command",
                command=command,
                outcome=outcome,
                project=asked.project if asked else None,
                user=holder.username if holder else None,
                user_id=holder.user_id if holder else None,
                bytes_in=session.bytes_in,
                bytes_out=session.bytes_out,
                duration_ms=round(seconds * 1000, 2),
            )
            session.end(status, text)

    async def _converse(self, session: Session, asked: Asked, key: PublicKey, request_id: str) -> None:
        if asked.service is Service.UPLOAD:
            granted = await self.access.reader(asked.project, key, request_id)
            incoming = bounded(session.incoming(whole=False))
            await self.transport.upload_pack(granted.path, incoming, session.write, protocol=session.protocol, stateless=False)
            return
        granted = await self.access.pusher(asked.project, key, request_id)

        async def judge(updates: list[Update]) -> list[Verdict]:
            return await self.access.judge(granted, updates, request_id)

        # What a lost client sent counts as whole: git sees for itself whether the pack has its end, and moves nothing before.
        incoming = session.incoming(whole=True)
        moved = await self.transport.receive_pack(granted.path, incoming, session.write, judge, stateless=False)
        if moved:
            # The client waits for the end of the command, and may then look at what follows from its push.
            await self.access.pushed(granted, moved, request_id)


class Line(asyncssh.SSHServer):
    """One connection: whose key it has shown, and the commands that run on it."""

    def __init__(self, door: SshDoor) -> None:
        self._door = door
        self._connection: asyncssh.SSHServerConnection | None = None
        self._sessions: set[Session] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._keys_tried = 0
        self._valid: PublicKey | None = None
        self._key: PublicKey | None = None
        self._busy_at = monotonic()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        # asyncssh minds the window of the client, which may be of any size, and not what the socket still holds.
        conn.pause_writing = self._writable.clear  # type: ignore[method-assign]
        conn.resume_writing = self._writable.set  # type: ignore[method-assign]
        if not self._door.admits(self, (conn.get_extra_info("peername") or ("",))[0]):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for session in self._sessions:
            session.connection_lost(exc)
        self._writable.set()
        self._door.forget(self)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether somebody may come in with the key, who is then asked to prove that it is theirs."""
        self._valid = None
        self._keys_tried += 1
        if self._keys_tried > MOST_KEYS:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys: name the right one in ~/.ssh/config."
            )
        shown = PublicKey(key.get_fingerprint("md5").removeprefix("MD5:"), key.public_data)
        try:
            holder = await self._door.access.holder(shown)
        except Exception as error:
            log.warning("key not looked up", error=f"{type(error).__name__}: {error}")
            raise asyncssh.ServiceNotAvailable("The service cannot look up keys right now; try again in a moment.") from error
        self._valid = shown if holder else None
        return holder is not None

    def auth_completed(self) -> None:
        # The last that was found valid is the one that signed: each try ends the one before, and nothing comes between the two.
        self._key = self._valid
        self._busy_at = monotonic()
        self._door.knows(self)

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], Session]:
        self._sessions = {session for session in self._sessions if not session.gone or _runs(session)}
        if self._connection is None or self._key is None or self._door.is_stopping:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "The service is stopping.")
        if len(self._sessions) >= MOST_SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "Too many commands at once on one connection.")
        key = self._key
        session = Session(self._connection, self._writable, lambda session: self._door.run(session, key))
        self._sessions.add(session)
        self._busy_at = monotonic()
        return session.channel, session

    def tasks(self) -> set[asyncio.Task[None]]:
        """The commands that run."""
        return {session.task for session in self._sessions if session.task is not None and not session.task.done()}

    def sweep(self) -> None:
        """Ends what nobody minds any more."""
        now = monotonic()
        if self.tasks():
            self._busy_at = now
        elif self._key is not None and now - self._busy_at > IDLE_SECONDS:
            self.leave("Nothing was asked for a while.")
        for session in list(self._sessions):
            asked = understood(session.command or "")
            if asked and _runs(session) and session.silent_for() > SILENT_SECONDS[asked.service]:
                session.abort()

    def leave(self, reason: str) -> None:
        """Ends the connection, and tells the client why."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, reason)

    def cut(self) -> None:
        if self._connection is not None:
            self._connection.abort()


def _runs(session: Session) -> bool:
    return session.task is not None and not session.task.done()


def _explained(error: Exception) -> tuple[str, str]:
    """How a command ended that failed so, and what its client is told: over HTTP the words are the same."""
    if isinstance(error, Unauthenticated):
        return "refused", "ERROR: This key is not known here any more, or its owner is blocked."
    if is_unavailable(error):
        log.warning("unavailable", error=f"{type(error).__name__}: {error}")
        return "failed", "ERROR: The service cannot answer right now; try again in a moment."
    refused = refusal(error)
    if refused is None:
        log.error("failed", exc_info=error)
        return "failed", "ERROR: The service failed; its log says why."
    return "failed" if refused.status >= 500 else "refused", f"ERROR: {refused.text}"


def _place(address: str) -> str:
    """What counts as one address: `2001:db8::1` is one of `2001:db8::/64`."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found)

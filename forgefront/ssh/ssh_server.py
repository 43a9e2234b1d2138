"""Clone, fetch and push over SSH: git's two commands at `ssh://git@HOST:PORT/NAMESPACE/PROJECT.git`, and nothing else.

The key identifies the user, whatever the user name; the graph authorizes each command; the transport runs git. There is no shell, no
terminal, no forwarding and no other subsystem or variable than those named here.
"""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from time import monotonic, perf_counter

import asyncssh
import structlog

from forgefront.git_http.endpoint import limit_fetch_body, refusal_of
from forgefront.logs import REQUEST_ID
from forgefront.ssh import host_keys
from forgefront.ssh.ssh_session import GitCommand, SshClientDisconnected, SshSession, parse_command
from graph.errors import Unauthenticated
from graph.git_access import GitAccess, KeyOwner, PublicKey
from storage.database.errors import is_unavailable
from storage.git.protocol.push import PushDecision, RefCommand
from storage.git.protocol.transport import GitService, Transport

MAX_CONNECTIONS = 1000
"""Maximum number of connections in each server process."""
MAX_CONNECTIONS_PER_OWNER = 200
"""The same, of one user with all keys, or of one deploy key, so that nobody can keep the others out."""
MAX_UNAUTHENTICATED = 200
"""Maximum number of unauthenticated connections; beyond it, the oldest is closed."""
MAX_UNAUTHENTICATED_PER_ADDRESS = 20
"""The same, of one address (of IPv6, of one network of 64 bits)."""
MAX_SESSIONS = 10
"""Maximum number of concurrent commands on one connection, as in sshd."""
MAX_KEYS_TRIED = 20
"""Keys that a connection may try."""
LOGIN_SECONDS = 30
KEEPALIVE_SECONDS = 15
MAX_MISSED_KEEPALIVES = 3
"""Number of unanswered keep-alive messages after which a connection is closed."""
IDLE_SECONDS = 300.0
"""Seconds after which a connection without a running command is closed."""
MAX_SILENT_SECONDS = {GitService.UPLOAD: 60.0, GitService.RECEIVE: 300.0}
"""Seconds without a byte in either direction. A push may take longer, since the client compresses after it has connected."""
SWEEP_SECONDS = 5.0
FINISH_PUSHES_SECONDS = 1.5
"""Seconds to process and record pushes that were completely received before their connections were closed."""

CommandCounter = Callable[[str, str, float], None]
"""Takes a command that was served: its name, its outcome and its duration in seconds."""

log = structlog.get_logger("ssh")


class GitSshServer:
    """Serves git on a listening socket, which it closes at the end. `set_connections` is called with the number of connections."""

    def __init__(
        self,
        access: GitAccess,
        transport: Transport,
        listener: socket.socket,
        keys: Sequence[asyncssh.SSHKey],
        *,
        count_command: CommandCounter = lambda command, outcome, seconds: None,
        set_connections: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.access = access
        self.transport = transport
        self.is_stopping = False
        self.connections: set[SshConnection] = set()
        self._unauthenticated: dict[SshConnection, str] = {}
        self._listener = listener
        self._keys = keys
        self._count_command = count_command
        self._set_connections = set_connections
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts to accept connections."""
        self._acceptor = await asyncssh.listen(
            sock=self._listener,
            backlog=MAX_UNAUTHENTICATED,
            server_factory=lambda: SshConnection(self),
            server_host_keys=self._keys,
            server_version="Forgefront",
            config=None,
            # Only public keys; whatever is not named here has no handler that would allow it.
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
            keepalive_count_max=MAX_MISSED_KEEPALIVES,
        )
        self._sweeper = asyncio.create_task(self._sweep())
        for key in self._keys:
            log.info("ssh ready", process=os.getpid(), port=self._listener.getsockname()[1], fingerprint=host_keys.fingerprint(key))

    @property
    def public_keys(self) -> list[bytes]:
        """The public parts of the host keys."""
        return [key.public_data for key in self._keys]

    def begin_shutdown(self, seconds: float) -> None:
        """Accepts nothing new; running commands have these seconds to end. Then connections are closed, and completely received pushes are
        processed."""
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
        """Returns when all commands have ended, or FINISH_PUSHES_SECONDS after the deadline: now, unless `begin_shutdown` set one."""
        self.begin_shutdown(0.0)
        assert self._draining is not None  # noqa: S101 - assigned by the line above
        await self._draining

    async def _drain(self, seconds: float) -> None:
        for connection in list(self.connections):
            if not connection.tasks():
                connection.disconnect("The service is stopping.")
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=seconds)
        # The last output of a command is still on its way to its client.
        await asyncio.sleep(0.05)
        tasks = self._tasks()
        for connection in list(self.connections):
            connection.disconnect("The service is stopping.")
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_PUSHES_SECONDS)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for connection in self.connections for task in connection.tasks()}

    def admit(self, connection: "SshConnection", address: str) -> bool:
        """Whether a connection may stay. One above the limit closes the oldest unauthenticated one."""
        network = _network_of(address)
        if (
            self.is_stopping
            or len(self.connections) >= MAX_CONNECTIONS
            or Counter(self._unauthenticated.values())[network] >= MAX_UNAUTHENTICATED_PER_ADDRESS
        ):
            return False
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))
            self._unauthenticated.pop(oldest)
            oldest.abort()
        self._unauthenticated[connection] = network
        self.connections.add(connection)
        self._set_connections(len(self.connections))
        return True

    def mark_authenticated(self, connection: "SshConnection") -> bool:
        """Called when the connection is authenticated. Returns whether it may stay, because its owner has not too many."""
        self._unauthenticated.pop(connection, None)
        return sum(other.owner == connection.owner for other in self.connections) <= MAX_CONNECTIONS_PER_OWNER

    def remove(self, connection: "SshConnection") -> None:
        self._unauthenticated.pop(connection, None)
        self.connections.discard(connection)
        self._set_connections(len(self.connections))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for connection in list(self.connections):
                connection.close_if_idle()

    async def serve_command(self, session: SshSession, key: PublicKey) -> None:
        """Serves one command, to its end."""
        started, request_id = perf_counter(), os.urandom(12).hex()
        REQUEST_ID.set(request_id)
        git_command = parse_command(session.command) if session.command is not None else None
        command = git_command.service.value if git_command else "shell" if session.command is None else "other"
        status, message, outcome = 1, "", "refused"
        owner: KeyOwner | None = None
        try:
            owner = await self.access.find_key_owner(key)
            if owner is None:
                raise Unauthenticated
            if session.command is None:
                message = (
                    f"Hi {owner.username}! You are authenticated, but there is no shell access: use git clone, git fetch and git push."
                )
            elif git_command is None:
                message = "ERROR: Only git-upload-pack and git-receive-pack of NAMESPACE/PROJECT.git are allowed here."
            else:
                await self._run_git(session, git_command, key, request_id)
                status, outcome = 0, "done"
        except Exception as error:
            outcome, message = (
                ("gone", "") if session.is_disconnected or isinstance(error, SshClientDisconnected) else _explain_error(error)
            )
        finally:
            seconds = perf_counter() - started
            if session.is_disconnected and outcome == "done":
                outcome = "gone"
            self._count_command(command, outcome, seconds)
            log.info(
                "ssh command",
                command=command,
                outcome=outcome,
                project=git_command.project if git_command else None,
                user=owner.username if owner else None,
                user_id=owner.user_id if owner else None,
                bytes_in=session.bytes_in,
                bytes_out=session.bytes_out,
                duration_ms=round(seconds * 1000, 2),
            )
            session.end(status, message)

    async def _run_git(self, session: SshSession, git_command: GitCommand, key: PublicKey, request_id: str) -> None:
        if git_command.service is GitService.UPLOAD:
            grant = await self.access.authorize_fetch(git_command.project, key, request_id)
            incoming = limit_fetch_body(session.read_incoming(accepts_disconnect=False))
            async with self.access.open(grant) as path:
                await self.transport.upload_pack(
                    path, incoming, session.write, protocol=session.protocol, stateless=False, requester=grant.requester
                )
            return
        grant = await self.access.authorize_push(git_command.project, key, request_id)

        async def authorize(updates: list[RefCommand]) -> list[PushDecision]:
            return await self.access.authorize_updates(grant, updates, request_id)

        async def move(updates: list[RefCommand], atomic: bool) -> list[str | None]:
            return await self.access.move_refs(grant, updates, request_id, atomic=atomic)

        # The input of a lost client counts as complete: git checks whether the pack has its end, and moves no ref before.
        incoming = session.read_incoming(accepts_disconnect=True)
        async with self.access.open(grant) as path:
            try:
                session.begin_transfer()
                reserve = partial(self.access.reserve, grant)
                await self.transport.receive_pack(
                    path, incoming, session.write, authorize, move, reserve=reserve, stateless=False, requester=grant.requester
                )
            finally:
                await self.access.finish_push(grant)


class SshConnection(asyncssh.SSHServer):
    """One connection: the key that was offered, and the commands that run on it."""

    def __init__(self, server: GitSshServer) -> None:
        self._server = server
        self._connection: asyncssh.SSHServerConnection | None = None
        self._sessions: set[SshSession] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._keys_tried = 0
        self._validated_key: PublicKey | None = None
        self._validated_owner: KeyOwner | None = None
        self._key: PublicKey | None = None
        self.owner: KeyOwner | None = None
        self._last_busy_at = monotonic()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        # asyncssh respects the window of the client, which may be of any size, but not the size of the socket's buffer.
        conn.pause_writing = self._writable.clear  # type: ignore[method-assign]
        conn.resume_writing = self._writable.set  # type: ignore[method-assign]
        if not self._server.admit(self, (conn.get_extra_info("peername") or ("",))[0]):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for session in self._sessions:
            session.connection_lost(exc)
        self._writable.set()
        self._server.remove(self)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether a user has the key; then the client must prove that it owns it."""
        self._validated_key = None
        self._keys_tried += 1
        if self._keys_tried > MAX_KEYS_TRIED:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys: select the right one in ~/.ssh/config."
            )
        public_key = PublicKey(key.get_fingerprint("md5").removeprefix("MD5:"), key.public_data)
        try:
            owner = await self._server.access.find_key_owner(public_key)
        except Exception as error:
            log.warning("key lookup failed", error=f"{type(error).__name__}: {error}")
            raise asyncssh.ServiceNotAvailable("The service cannot look up keys now; try again in a moment.") from error
        self._validated_key, self._validated_owner = public_key if owner else None, owner
        return owner is not None

    def auth_completed(self) -> None:
        # The key that was last found valid is the one that signed: each attempt ends the one before.
        self.owner = self._validated_owner
        self._last_busy_at = monotonic()
        if self._server.mark_authenticated(self):
            self._key = self._validated_key
        else:
            self.disconnect("Too many connections of one user are open; close some first.")

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], SshSession]:
        self._sessions = {session for session in self._sessions if not session.is_disconnected or _is_running(session)}
        if self._connection is None or self._key is None or self._server.is_stopping:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "The service is stopping.")
        if len(self._sessions) >= MAX_SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "Too many concurrent commands on one connection.")
        key = self._key
        session = SshSession(self._connection, self._writable, lambda session: self._server.serve_command(session, key))
        self._sessions.add(session)
        self._last_busy_at = monotonic()
        return session.channel, session

    def tasks(self) -> set[asyncio.Task[None]]:
        """The running commands."""
        return {session.task for session in self._sessions if session.task is not None and not session.task.done()}

    def close_if_idle(self) -> None:
        """Closes a connection that is no longer used."""
        now = monotonic()
        if self.tasks():
            self._last_busy_at = now
        elif self._key is not None and now - self._last_busy_at > IDLE_SECONDS:
            self.disconnect("The connection was idle for too long.")
        for session in list(self._sessions):
            git_command = parse_command(session.command or "")
            if git_command and _is_running(session) and session.silent_seconds() > MAX_SILENT_SECONDS[git_command.service]:
                session.abort()

    def disconnect(self, reason: str) -> None:
        """Closes the connection, and sends the reason to the client."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, reason)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()


def _is_running(session: SshSession) -> bool:
    return session.task is not None and not session.task.done()


def _explain_error(error: Exception) -> tuple[str, str]:
    """The outcome of a failed command, and its message, which HTTP shares."""
    if isinstance(error, Unauthenticated):
        return "refused", "ERROR: This key is no longer valid, or its owner is blocked."
    if is_unavailable(error):
        log.warning("unavailable", error=f"{type(error).__name__}: {error}")
        return "failed", "ERROR: The service is unavailable; try again in a moment."
    rejection = refusal_of(error)
    if rejection is None:
        log.error("failed", exc_info=error)
        return "failed", "ERROR: Internal error; the server log contains the details."
    return "failed" if rejection.status >= 500 else "refused", f"ERROR: {rejection.message}"


def _network_of(address: str) -> str:
    """The unit of the limit for one address: `2001:db8::1` counts as `2001:db8::/64`."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False))
    return str(parsed)

"""Local mirrors of the repositories of the imported instance, cloned and fetched by git over HTTP or SSH.

A mirror is a bare repository in the work folder. A later run lists the refs, over HTTP without a git process where the server allows it,
and fetches only what changed. Git receives the credentials in its environment, since other users can see the arguments of a process.
"""

import asyncio
import hashlib
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Timer
from typing import NamedTuple

from forgefront.importing.source_errors import SourceMissing
from storage.git.cancellation import call_when_canceled, check_canceled, run_in_thread
from storage.git.importing.remote_import import SETTINGS
from storage.git.subprocesses import git_command

CLONE_SECONDS = 3_600.0
HEAD_SECONDS = 60.0
MAX_OUTPUT_BYTES = 64 * 2**20
"""Bytes that a git process may print, which is more than a million refs."""
MAX_REASON_LENGTH = 500
REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+refs/merge-requests/*:refs/merge-requests/*")
DIGEST_FILE = "refs.digest"
"""What git listed at the last complete fetch, as a digest; without it the next run fetches."""
READ_COMMITS_FILE = "commits.read"
"""The commits whose statuses and comments the last complete run had read, a line each."""
SSH_ENVIRONMENT = ("HOME", "USER", "SSH_AUTH_SOCK")
_SSH_URL = re.compile(r"(?:ssh://)?[\w.-]+@[\w.-]+(?::\d+)?[:/][^\s]+", re.ASCII)
_HEAD = re.compile(r"^ref: refs/heads/(.+)\tHEAD$", re.MULTILINE)


ListRefs = Callable[[str, str | None], Awaitable[str | None]]
"""Lists the refs at a URL with these credentials, as `git ls-remote --symref` does; returns None where git has to do it. Raises
SourceMissing."""


class MirrorCommit(NamedTuple):
    """`committed_at` is in seconds since 1970; 0 where the commit has no valid date."""

    oid: str
    committed_at: int


class CloneFailed(Exception):
    """Git could not read the repository; the message is git's, without credentials."""


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """`credentials` are "user:password" pairs, which are tried in this order."""

    url: str
    credentials: tuple[str, ...] = field(default=(), repr=False)


@dataclass
class RepositoryMirrors:
    """Mirrors in `folder`, at most `parallel` git processes at once. `list_refs` is for addresses of HTTP."""

    folder: Path
    parallel: int
    seconds: float = CLONE_SECONDS
    list_refs: ListRefs | None = None

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.parallel)
        self._accepted = 0

    def path_of(self, project_id: int) -> Path:
        return self.folder / f"{project_id}.git"

    async def update(self, project_id: int, source: MirrorSource) -> str:
        """Clones or fetches the repository if its refs changed. Returns a digest of the refs. Raises CloneFailed, OSError."""
        try:
            listed = await self._list_without_git(source)
        except SourceMissing:
            # Other credentials may find it, and git says what is wrong.
            listed = None
        async with self._slots:
            return await run_in_thread(self._update, self.path_of(project_id), source, listed)

    async def has_branches(self, project_id: int, source: MirrorSource) -> bool:
        """Whether another repository of the project can be read and is not empty, with the credentials that were accepted last."""
        try:
            listed = await self._list_without_git(source)
        except SourceMissing:
            return False
        if listed is not None:
            return "\trefs/heads/" in listed
        async with self._slots:
            return await run_in_thread(self._has_branches, self.path_of(project_id), source)

    async def _list_without_git(self, source: MirrorSource) -> str | None:
        """The refs that a server of HTTP lists; None where git has to do it. Raises SourceMissing."""
        if self.list_refs is None or _is_ssh(source.url):
            return None
        (_, credentials), *_ = self._order_credentials(source)
        return await self.list_refs(source.url, credentials)

    def _has_branches(self, path: Path, source: MirrorSource) -> bool:
        (_, credentials), *_ = self._order_credentials(source)
        try:
            environ = _environment(_protocols_of(source.url), credentials)
            return bool(self._run(path, environ, HEAD_SECONDS, "ls-remote", "--heads", "--end-of-options", source.url).strip())
        except CloneFailed:
            return False

    def uses_lfs(self, project_id: int) -> bool:
        """Whether files of the default branch are in LFS."""
        arguments = ("grep", "--quiet", "--fixed-strings", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes")
        try:
            self._run(self.path_of(project_id), git_command.environment(), HEAD_SECONDS, *arguments)
        except CloneFailed:
            # Nothing was found, or there is no commit.
            return False
        return True

    def list_commits(self, project_id: int, limit: int) -> list[MirrorCommit]:
        """The newest commits of all refs, newest first; none without a mirror. Raises CloneFailed."""
        return self._list_commits(project_id, "--all", f"--max-count={limit}")

    def list_heads(self, project_id: int) -> list[MirrorCommit]:
        """The commits that branches and tags name; none without a mirror. Raises CloneFailed."""
        return self._list_commits(project_id, "--branches", "--tags", "--no-walk")

    def _list_commits(self, project_id: int, *options: str) -> list[MirrorCommit]:
        path = self.path_of(project_id)
        if not (path / "HEAD").is_file():
            return []
        listed = self._run(path, git_command.environment(), HEAD_SECONDS, "log", *options, "--format=%H %ct")
        return _parse_commits(listed)

    def load_read_commits(self, project_id: int, digest: str) -> frozenset[str]:
        """The commits that `store_read_commits` has stored and returned this digest for; none if the mirror has others, or is new."""
        try:
            content = (self.path_of(project_id) / READ_COMMITS_FILE).read_bytes()
        except FileNotFoundError:
            return frozenset()
        return frozenset(content.decode().split()) if hashlib.sha256(content).hexdigest() == digest else frozenset()

    def store_read_commits(self, project_id: int, oids: Iterable[str]) -> str:
        """Stores commits beside the objects of the mirror. Returns the digest with which an import finds them again."""
        content = "".join(f"{oid}\n" for oid in oids).encode()
        (self.path_of(project_id) / READ_COMMITS_FILE).write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def _update(self, path: Path, source: MirrorSource, listed: str | None) -> str:
        protocols = _protocols_of(source.url)
        if not (path / "HEAD").is_file():
            # A clone that was killed leaves a repository that the next fetch completes.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            git_command.run(path, "init", "--bare", "--quiet")
        error: CloneFailed | None = None
        for number, credentials in self._order_credentials(source):
            try:
                digest = self._fetch(path, source.url, _environment(protocols, credentials), listed)
            except CloneFailed as failure:
                error = failure
            else:
                self._accepted = number
                return digest
        assert error is not None  # noqa: S101 - there is an attempt
        raise error

    def _order_credentials(self, source: MirrorSource) -> list[tuple[int, str | None]]:
        """The credentials with their positions; those that the server accepted last come first."""
        if _is_ssh(source.url) or not source.credentials:
            return [(0, None)]
        return sorted(enumerate(source.credentials), key=lambda each: each[0] != self._accepted)

    def _fetch(self, path: Path, url: str, environ: dict[str, str], listed: str | None) -> str:
        if listed is None:
            listed = self._run(path, environ, HEAD_SECONDS, "ls-remote", "--symref", "--end-of-options", url)
        digest = hashlib.sha256(listed.encode()).hexdigest()
        digest_file = path / DIGEST_FILE
        if digest_file.is_file() and digest_file.read_text() == digest:
            return digest
        digest_file.unlink(missing_ok=True)
        self._run(path, environ, self.seconds, "fetch", "--prune", *git_command.FETCH_OPTIONS, url, *REFSPECS)
        # Git names the same branch in a new repository as most servers do.
        if (head := _HEAD.search(listed)) and (path / "HEAD").read_bytes() != f"ref: refs/heads/{head[1]}\n".encode():
            self._run(path, environ, HEAD_SECONDS, "symbolic-ref", "HEAD", f"refs/heads/{head[1]}")
        digest_file.write_text(digest)
        return digest

    def _run(self, path: Path, environ: dict[str, str], seconds: float, *arguments: str) -> str:
        process = git_command.start_process(
            git_command.command(path, *arguments, settings=(*SETTINGS, "core.fsync=none")),
            environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            may_fork=True,
            new_session=True,
        )
        timer = Timer(seconds, git_command.kill_group, (process,))
        timer.start()
        try:
            with call_when_canceled(partial(git_command.kill_group, process)):
                output, errors = git_command.communicate(process, limit=MAX_OUTPUT_BYTES + 1)
        finally:
            timer.cancel()
            git_command.end_process(process)
        # Otherwise the next credentials would be tried.
        check_canceled()
        if process.returncode:
            raise CloneFailed(_find_reason(errors.decode("utf-8", "replace")) or f"git ended with {process.returncode}")
        if len(output) > MAX_OUTPUT_BYTES:
            raise CloneFailed(f"git {arguments[0]} printed more than {MAX_OUTPUT_BYTES:,} bytes")
        return output.decode("utf-8", "replace")


def _parse_commits(listed: str) -> list[MirrorCommit]:
    """Parses lines of the format `%H %ct`. Git prints no date of a commit whose time zone it cannot read."""
    rows = (line.partition(" ") for line in listed.splitlines())
    return [MirrorCommit(oid, int(seconds) if seconds.isdigit() else 0) for oid, _, seconds in rows]


def _is_ssh(url: str) -> bool:
    return not url.startswith(("http://", "https://"))


def _protocols_of(url: str) -> str:
    """What git may speak to this address. Raises CloneFailed."""
    if not _is_ssh(url):
        return "http:https"
    if _SSH_URL.fullmatch(url):
        return "ssh"
    raise CloneFailed("the address of the repository is neither HTTP nor SSH")


def _find_reason(errors: str) -> str:
    """What git and the server report, without the advice that git adds."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reported = [line for line in lines if line.lower().startswith(("fatal:", "error:", "remote:"))]
    return "; ".join(reported or lines[-1:])[:MAX_REASON_LENGTH]


def _environment(protocols: str, credentials: str | None) -> dict[str, str]:
    environ = {**git_command.environment(), **git_command.authorities(), "GIT_ALLOW_PROTOCOL": protocols}
    if protocols == "ssh":
        environ |= {name: os.environ[name] for name in SSH_ENVIRONMENT if name in os.environ}
        # Of the caller, who may name another key or file of settings.
        environ["GIT_SSH_COMMAND"] = f"{os.environ.get('GIT_SSH_COMMAND') or 'ssh'} -o BatchMode=yes"
    if credentials is not None:
        environ |= git_command.config_environment({"http.extraHeader": git_command.basic_authorization(credentials)})
    return environ

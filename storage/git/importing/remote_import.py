"""Imports the whole history of a repository on another host, over HTTP, into a new bare repository.

The caller has checked the addresses of the host. Git connects to these alone (`http.curloptResolve`), follows no redirects and uses no
other protocol, so a name that changes its addresses in between has no effect.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from storage.git.cancellation import call_when_canceled
from storage.git.importing.repository_import import REFSPECS, ProgressCallback, report_progress
from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD
from storage.git.repository import Repository
from storage.git.repository_folders import create_atomically
from storage.git.subprocesses import git_command

IMPORT_SECONDS = 3_600.0
LIST_SECONDS = 60.0
MAX_HEAD_BYTES = 64 * 1024
"""Bytes that are read of the list of refs named HEAD; that of the repository comes first."""
MIN_BYTES_PER_SECOND = 1_000
"""A transfer that is slower than this for a minute ends."""
SETTINGS = (
    "credential.helper=",
    "http.followRedirects=false",
    "http.proxy=",
    f"http.lowSpeedLimit={MIN_BYTES_PER_SECOND}",
    "http.lowSpeedTime=60",
    "fetch.unpackLimit=1",
    "fetch.fsckObjects=true",
    *(f"fetch.fsck.{level}" for level in git_command.FSCK_LEVELS),
)
"""Objects are checked as those of a push are."""


@dataclass(frozen=True, slots=True)
class RemoteRepository:
    """A repository at `url`, without credentials. `addresses` are those of the host to which git may connect.

    `credentials` are "user:password"; None for a repository that needs none.
    """

    url: str
    host: str
    port: int
    addresses: Sequence[str]
    credentials: str | None = None


def import_remote(remote: RemoteRepository, target: Path, progress: ProgressCallback) -> None:
    """Creates `target`, a bare repository with all branches, all tags and the HEAD of the remote one, synced to disk.

    Raises GitCommandError with git's message, FileExistsError for `target`, OSError (ENOSPC) if the disk is full. An exception of
    `progress` ends the import and is passed on. A cancellation of the thread's work (`storage/git/cancellation.py`) ends git at once.
    """
    with create_atomically(target) as folder:
        Repository.initialize(folder, DEFAULT_HEAD)
        branch = _find_head(folder, remote)
        with _start(folder, remote, IMPORT_SECONDS, "fetch", "--progress", *git_command.FETCH_OPTIONS, remote.url, *REFSPECS) as process:
            last_lines = report_progress(process, progress)
        if process.returncode:
            raise git_command.failure_of(b"\n".join(last_lines), process.returncode)
        repository = Repository.open(folder)
        if branch is not None and branch in (each.name for each in repository.branches()):
            repository.set_default_branch(branch)
        git_command.run(folder, "pack-refs", "--all")


def _find_head(folder: Path, remote: RemoteRepository) -> str | None:
    """The branch that the remote HEAD names; None if it names none."""
    with _start(folder, remote, LIST_SECONDS, "ls-remote", "--symref", "--end-of-options", remote.url, "HEAD") as process:
        stdout, stderr = git_command.communicate(process, limit=MAX_HEAD_BYTES)
    if process.returncode:
        raise git_command.failure_of(stderr, process.returncode)
    # Only git's own line breaks: the name of a branch may contain others, such as U+2028.
    for line in stdout.decode("utf-8", "replace").split("\n"):
        if line.startswith(f"ref: {BRANCHES}") and line.endswith("\tHEAD"):
            return line.removeprefix(f"ref: {BRANCHES}").removesuffix("\tHEAD")
    return None


@contextmanager
def _start(folder: Path, remote: RemoteRepository, seconds: float, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a git command that connects to the remote host; it is killed after `seconds` and at the end of the block."""
    addresses = ",".join(f"[{address}]" if ":" in address else address for address in remote.addresses)
    # An IPv6 address needs no resolution, and curl cannot parse it as a name.
    resolution = () if ":" in remote.host else (f"http.curloptResolve={remote.host}:{remote.port}:{addresses}",)
    process = git_command.start_process(
        git_command.command(folder, *arguments, settings=(*SETTINGS, *resolution)),
        {**git_command.environment(), **git_command.authorities(), "GIT_ALLOW_PROTOCOL": "http:https", **_credential_environment(remote)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if arguments[0] == "ls-remote" else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        may_fork=True,
        new_session=True,
    )
    timer = Timer(seconds, git_command.kill_group, (process,))
    timer.start()
    try:
        with call_when_canceled(partial(git_command.kill_group, process)):
            yield process
    finally:
        timer.cancel()
        git_command.end_process(process)


def _credential_environment(remote: RemoteRepository) -> dict[str, str]:
    if remote.credentials is None:
        return {}
    return git_command.config_environment({"http.extraHeader": git_command.basic_authorization(remote.credentials)})

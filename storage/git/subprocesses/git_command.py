"""Runs the `git` program: by argument lists without a shell, isolated from the configuration of machine and user, within limits."""

import base64
import errno
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import IO

from storage.git.subprocesses import limits
from storage.git.subprocesses.limits import ProcessLimits

TIMEOUT_SECONDS = 60.0
"""Default time limit of a command, enough for commands that touch only refs."""

MAX_STDERR_BYTES = 64 * 1024
"""Bytes of stderr that are kept, the last ones: another host decides how much git prints there."""
_BLOCK_BYTES = 64 * 1024

FSCK_LEVELS = ("badTimezone=ignore", "missingSpaceBeforeDate=ignore", "zeroPaddedFilemode=ignore")
"""Old histories have these defects, and git tools accept them."""
FETCH_OPTIONS = ("--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules", "--end-of-options")


class GitCommandError(Exception):
    """The git program failed; the message is its stderr."""


_limits = ProcessLimits()


def set_limits(process_limits: ProcessLimits) -> None:
    """Sets the limits of all git processes that this process starts from now on."""
    global _limits
    _limits = process_limits


def current_limits() -> ProcessLimits:
    return _limits


def environment(global_config: Path | None = None) -> dict[str, str]:
    """Returns the complete environment of a git process.

    Only PATH is inherited: `GIT_DIR`, `GIT_CONFIG_*`, a user's aliases, hooks and credential helpers have no effect. Only local
    paths are allowed as protocol, so a source with missing objects cannot make git connect to another host.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        # glibc reserves 64 to 128 MB of addresses for the memory of each thread, which the limit of a process counts (limits.py).
        "MALLOC_ARENA_MAX": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(global_config or os.devnull),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def authorities() -> dict[str, str]:
    """The variables with which git trusts the certificate authorities of SSL_CERT_FILE, as Python does.

    Git does not read that variable; its own ones come first (https://git-scm.com/docs/git-config, `http.sslCAInfo`).
    """
    found = {
        "GIT_SSL_CAINFO": os.environ.get("GIT_SSL_CAINFO") or os.environ.get("SSL_CERT_FILE"),
        "GIT_SSL_CAPATH": os.environ.get("GIT_SSL_CAPATH"),
    }
    return {name: value for name, value in found.items() if value}


def config_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of git as variables: the arguments of a process and the files of a repository are visible to others."""
    return {
        "GIT_CONFIG_COUNT": str(len(settings)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(settings)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(settings.values())},
    }


def basic_authorization(credentials: str) -> str:
    """The HTTP header that sends "user:password" (RFC 7617)."""
    return f"Authorization: Basic {base64.b64encode(credentials.encode()).decode()}"


def command(git_dir: Path, *arguments: str, settings: Sequence[str] = ()) -> list[str]:
    """Returns the argument list for `arguments` in the repository `git_dir`: without hooks, and with all writes synced to disk."""
    default = ("core.fsync=all", "core.hooksPath=/dev/null", "core.filesRefLockTimeout=2000", "gc.auto=0", *limits.GIT_SETTINGS)
    return [
        "git",
        f"--git-dir={git_dir.absolute()}",
        *(part for setting in (*default, *settings) for part in ("-c", setting)),
        *arguments,
    ]


def run(git_dir: Path, *arguments: str, stdin: bytes = b"", seconds: float = TIMEOUT_SECONDS) -> bytes:
    """Runs a command and returns its output. Raises GitCommandError, also after `seconds`, or OSError (ENOSPC) if the disk is full."""
    return run_with_code(git_dir, *arguments, stdin=stdin, seconds=seconds, expected_codes=(0,))[1]


def run_with_code(
    git_dir: Path,
    *arguments: str,
    expected_codes: tuple[int, ...] = (0, 1),
    stdin: bytes = b"",
    seconds: float = TIMEOUT_SECONDS,
    extra_environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Runs a command and returns its exit code and output; `extra_environment` is added to its environment.

    Raises as `run`, also for an exit code that is not in `expected_codes`.
    """
    with start_process(
        command(git_dir, *arguments),
        {**environment(), **(extra_environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise GitCommandError(f"git {arguments[0]} took more than {seconds:.0f} s") from error
        finally:
            process.kill()
    if process.returncode not in expected_codes:
        raise failure_of(stderr, process.returncode)
    return process.returncode, stdout


def start_process(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    may_fork: bool = False,
    new_session: bool = False,
    process_limits: ProcessLimits | None = None,
) -> "subprocess.Popen[bytes]":
    """Starts a git process within these limits, or else the current ones. Raises OSError.

    `may_fork`: it may fork before it has read its input.
    """
    process_limits = process_limits or _limits
    process = subprocess.Popen(  # noqa: S603 - an argument list without a shell
        process_limits.wrap_command(arguments) if may_fork else limits.limited_command(arguments, process_limits),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environ,
        cwd="/",
        start_new_session=new_session,
    )
    try:
        if not may_fork:
            process_limits.apply(process.pid)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def read_output(git_dir: Path, *arguments: str, limit: int, seconds: float) -> bytes | None:
    """Runs a command and returns the first `limit` bytes of its output; None if it fails or takes longer than `seconds`."""
    output, code = _read_bounded(git_dir, *arguments, limit=limit, seconds=seconds)
    return output if code in (None, 0) else None


def read_prefix(git_dir: Path, *arguments: str, limit: int, seconds: float, expected_codes: tuple[int, ...] = (0,)) -> tuple[bytes, bool]:
    """Runs a command and returns its output up to `limit` bytes and `seconds`, and whether that is all of it.

    Raises GitCommandError for an exit code that is not in `expected_codes`, or OSError.
    """
    output, code = _read_bounded(git_dir, *arguments, limit=limit + 1, seconds=seconds)
    if code in (None, -signal.SIGKILL):
        return output[:limit], False
    if code not in expected_codes:
        raise GitCommandError(f"git {arguments[0]} failed with code {code}")
    return output, True


def _read_bounded(git_dir: Path, *arguments: str, limit: int, seconds: float) -> tuple[bytes, int | None]:
    """Runs a command and returns its output and exit code; the code is None for the first `limit` bytes of an output that has as many.

    The process is killed then, and after `seconds`.
    """
    with start_reading(git_dir, *arguments, seconds=seconds) as process:
        assert process.stdout is not None  # noqa: S101 - start_reading has a pipe
        output = process.stdout.read(limit)
        return output, None if len(output) == limit else process.wait()


@contextmanager
def start_reading(
    git_dir: Path, *arguments: str, seconds: float, extra_environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a command whose output the caller reads; it is killed after `seconds` and at the end of the block. Raises OSError."""
    with start_process(
        command(git_dir, *arguments),
        {**environment(), **(extra_environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        timer = Timer(seconds, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


@contextmanager
def start_fetch(
    git_dir: Path, source: Path, *refspecs: str, settings: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `git fetch` of `refspecs` (or ids) from the local repository `source` into `git_dir`, as a context manager.

    The caller has to read its stderr; it is killed if it has not ended at the end of the block. `source` may belong to another user.
    Objects are copied into one pack, without alternates; only the refs of `refspecs` are written. `settings` are git configuration,
    `options` are options of fetch. Raises OSError.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as config_file:
        # git rejects another user's repository unless the global configuration trusts the folder; the process that reads the source
        # accepts this setting only there. The operator named the source, or it is the service's own on a mounted volume.
        config_file.write("[safe]\n\tdirectory = *\n")
        config_file.flush()
        arguments = ("fetch", *options, *FETCH_OPTIONS, str(source.absolute()), *refspecs)
        process = start_process(
            command(git_dir, *arguments, settings=("fetch.unpackLimit=1", *settings)),
            environment(Path(config_file.name)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            may_fork=True,
            new_session=True,
        )
        try:
            yield process
        finally:
            end_process(process)


def communicate(process: "subprocess.Popen[bytes]", *, limit: int) -> tuple[bytes, bytes]:
    """Waits for the end of a process that has no input. Returns the first `limit` bytes of its stdout, and the end of its stderr.

    The rest is read and discarded, so that another host, which decides how much git prints, cannot fill the memory of this process.
    """
    assert process.stdout is not None and process.stderr is not None  # noqa: S101 - the caller reads both
    stdout, stderr = bytearray(), bytearray()
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                block = os.read(key.fd, _BLOCK_BYTES)
                if not block:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    stdout += block[: limit - len(stdout)]
                else:
                    stderr += block
                    del stderr[:-MAX_STDERR_BYTES]
    process.wait()
    return bytes(stdout), bytes(stderr)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process of a session of its own, and its children: fetch has some. Does nothing if it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_process(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process of a session of its own, if it has not ended, with its children, and closes its pipes."""
    if process.poll() is None:
        kill_group(process)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def failure_of(stderr: bytes, code: int = 1) -> Exception:
    """Returns the exception for a failed command by its stderr and exit code (negative after a signal).

    It is OSError with ENOSPC for a full disk, otherwise GitCommandError.
    """
    message = stderr.decode("utf-8", "replace").strip()[-2000:]
    if os.strerror(errno.ENOSPC) in message:
        return OSError(errno.ENOSPC, message)
    if code < 0:
        message = f"{message}\ngit died of signal {-code}".strip()
    if (reason := limits.explain_failure(message.encode(), _limits)) is not None:
        return GitCommandError(f"{message}; {reason}")
    return GitCommandError(message or "git failed without an error message")

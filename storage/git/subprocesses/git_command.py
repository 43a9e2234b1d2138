"""Runs the `git` program: always by arguments, never by a shell, deaf to the machine's and the caller's settings, and within limits."""

import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO

from storage.git.subprocesses import limits
from storage.git.subprocesses.limits import ProcessLimits

TIMEOUT_SECONDS = 60.0
"""Seconds that a command may take which only touches one repository's own refs."""


class GitCommandError(Exception):
    """The git program refused or failed; the text is what it said on its error stream."""


_limits = ProcessLimits()


def set_limits(process_limits: ProcessLimits) -> None:
    """Limits the git processes that this process starts from now on."""
    global _limits
    _limits = process_limits


def current_limits() -> ProcessLimits:
    return _limits


def environment(global_config: Path | None = None) -> dict[str, str]:
    """The whole environment of a git process.

    Nothing is inherited but the path: `GIT_DIR`, `GIT_CONFIG_*` and their like, a user's aliases, hooks and credential helpers
    stay outside. No protocol but a local path is allowed, so a source with missing objects cannot make git call another host.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(global_config or os.devnull),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def command(git_dir: Path, *arguments: str) -> list[str]:
    """The argument list for `arguments` in the repository `git_dir`: no hooks, and every write reaches the disk."""
    settings = ("core.fsync=all", "core.hooksPath=/dev/null", "core.filesRefLockTimeout=2000", "gc.auto=0", *limits.GIT_SETTINGS)
    return [
        "git",
        f"--git-dir={git_dir.absolute()}",
        *(part for setting in settings for part in ("-c", setting)),
        *arguments,
    ]


def run(git_dir: Path, *arguments: str, stdin: bytes = b"", seconds: float = TIMEOUT_SECONDS) -> bytes:
    """What the command prints. Raises GitCommandError, also after `seconds`, or OSError (ENOSPC) when the disk is full."""
    return run_with_code(git_dir, *arguments, stdin=stdin, seconds=seconds, expected_codes=(0,))[1]


def run_with_code(
    git_dir: Path,
    *arguments: str,
    expected_codes: tuple[int, ...] = (0, 1),
    stdin: bytes = b"",
    seconds: float = TIMEOUT_SECONDS,
    extra_environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """The exit code of a command that answers by it, and what it prints; `extra_environment` is added to its environment.

    Raises as `run`, also for any exit code that is none of the `expected_codes`.
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
) -> "subprocess.Popen[bytes]":
    """A git process within the limits of this process. `may_fork`: it starts others before it has read its input. Raises OSError."""
    process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell that reads them
        _limits.wrap_command(arguments) if may_fork else limits.limited_command(arguments, _limits),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environ,
        cwd="/",
        start_new_session=new_session,
    )
    try:
        if not may_fork:
            _limits.apply(process.pid)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def read_output(git_dir: Path, *arguments: str, limit: int, seconds: float) -> bytes | None:
    """The first `limit` bytes that the command prints, or None when it fails or takes longer than `seconds`."""
    with start_process(
        command(git_dir, *arguments), environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        timer = Timer(seconds, process.kill)
        timer.start()
        try:
            output = process.stdout.read(limit)
            if len(output) == limit:
                process.kill()
                return output
            return output if process.wait() == 0 else None
        finally:
            timer.cancel()
            process.kill()


@contextmanager
def start_fetch(
    git_dir: Path, source: Path, *refspecs: str, settings: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """A `git fetch` of `refspecs` (ids too) from the repository at `source` on this machine into `git_dir`.

    It has an error stream to be read, and is killed where it has not ended with the block. `source` may belong to another user. Objects
    are copied into one pack, never borrowed; no ref is written but those that are wanted. `settings` are configuration, `options` are
    fetch's own. Raises OSError.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as config_file:
        # git refuses another user's repository unless its global configuration trusts the folder, and the process that reads the source
        # takes this from nowhere else. The operator named it, or it is the service's own on a mounted volume.
        config_file.write("[safe]\n\tdirectory = *\n")
        config_file.flush()
        config_arguments = [part for setting in ("fetch.unpackLimit=1", *settings) for part in ("-c", setting)]
        process = start_process(
            [
                *command(git_dir, *config_arguments, "fetch", *options),
                *("--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"),
                *("--end-of-options", str(source.absolute()), *refspecs),
            ],
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
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # fetch has children of its own
                process.wait()
            if process.stderr is not None:
                process.stderr.close()


def failure_of(stderr: bytes, code: int = 1) -> Exception:
    """The exception for a failed command that said `stderr` and ended with `code`, negative where a signal ended it.

    OSError with ENOSPC for a full disk, else GitCommandError.
    """
    message = stderr.decode("utf-8", "replace").strip()[-2000:]
    if os.strerror(errno.ENOSPC) in message:
        return OSError(errno.ENOSPC, message)
    if code < 0:
        message = f"{message}\ngit died of signal {-code}".strip()
    if (reason := limits.explain_failure(message.encode(), _limits)) is not None:
        return GitCommandError(f"{message}; {reason}")
    return GitCommandError(message or "git failed without a word")

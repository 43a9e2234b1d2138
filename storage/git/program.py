"""Runs the `git` program: always by arguments, never by a shell, and deaf to the machine's and the caller's settings."""

import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

TIMEOUT = 60.0
"""Seconds that a command may take which only touches one repository's own refs."""


class GitFailed(Exception):
    """The git program refused or failed; the text is what it said on its error stream."""


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
    settings = ("core.fsync=all", "core.hooksPath=/dev/null", "core.filesRefLockTimeout=2000", "gc.auto=0")
    return [
        "git",
        f"--git-dir={git_dir.absolute()}",
        *(part for setting in settings for part in ("-c", setting)),
        *arguments,
    ]


def run(git_dir: Path, *arguments: str, stdin: bytes = b"", seconds: float = TIMEOUT) -> bytes:
    """What the command prints. Raises GitFailed, also after `seconds`, or OSError (ENOSPC) when the disk is full."""
    return ask(git_dir, *arguments, stdin=stdin, seconds=seconds, answers=(0,))[1]


def ask(
    git_dir: Path,
    *arguments: str,
    answers: tuple[int, ...] = (0, 1),
    stdin: bytes = b"",
    seconds: float = TIMEOUT,
    more: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """The exit code of a command that answers by it, and what it prints; `more` is added to its environment.

    Raises as `run`, also for any exit code that is none of the `answers`.
    """
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            command(git_dir, *arguments),
            input=stdin,
            capture_output=True,
            env={**environment(), **(more or {})},
            cwd="/",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took more than {seconds:.0f} s") from error
    if done.returncode not in answers:
        raise failure(done.stderr)
    return done.returncode, done.stdout


def read_some(git_dir: Path, *arguments: str, limit: int, seconds: float) -> bytes | None:
    """The first `limit` bytes that the command prints, or None when it fails or takes longer than `seconds`."""
    with subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
        command(git_dir, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd="/",
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
def fetching(
    git_dir: Path, source: Path, *wanted: str, settings: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """A `git fetch` of `wanted` (ids or refspecs) from the repository at `source` on this machine into `git_dir`.

    It has an error stream to be read, and is killed where it has not ended with the block. `source` may belong to another user. Objects
    are copied into one pack, never borrowed; no ref is written but those that are wanted. `settings` are configuration, `options` are
    fetch's own. Raises OSError.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as trust:
        # git refuses another user's repository unless its global configuration trusts the folder, and the process that reads the source
        # takes this from nowhere else. The operator named it, or it is the service's own on a mounted volume.
        trust.write("[safe]\n\tdirectory = *\n")
        trust.flush()
        configured = [part for setting in ("fetch.unpackLimit=1", *settings) for part in ("-c", setting)]
        process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
            [
                *command(git_dir, *configured, "fetch", *options),
                *("--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"),
                *("--end-of-options", str(source.absolute()), *wanted),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(Path(trust.name)),
            cwd="/",
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # fetch has children of its own
                process.wait()
            if process.stderr is not None:
                process.stderr.close()


def failure(stderr: bytes) -> Exception:
    """The exception for a failed command that said `stderr`: OSError with ENOSPC for a full disk, else GitFailed."""
    said = stderr.decode("utf-8", "replace").strip()[-2000:]
    if os.strerror(errno.ENOSPC) in said:
        return OSError(errno.ENOSPC, said)
    return GitFailed(said or "git failed without a word")

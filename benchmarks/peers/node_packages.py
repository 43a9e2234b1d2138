"""The packages of the peers on Node: pinned versions, installed once into a folder outside the repository.

Node itself is one of them (npm has it as `node`), since PostGraphile needs a newer one than many systems bring, and so that both peers run
on the same.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PEERS = Path(__file__).parent
INSTALLED_STAMP = "installed"


class PeerUnavailableError(Exception):
    """A peer cannot run here; the message says why."""


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgefront-bench"


def versions(name: str) -> dict[str, str]:
    """The packages of a peer."""
    found: dict[str, str] = json.loads((PEERS / "packages.json").read_text())[name]
    return found


def folder_of(name: str, cache: Path) -> Path:
    """The folder of a peer's packages in the pinned versions."""
    key = hashlib.sha256(json.dumps(versions(name), sort_keys=True).encode()).hexdigest()[:12]
    return cache / f"{name}-{key}"


def is_installed(name: str, cache: Path) -> bool:
    return (folder_of(name, cache) / INSTALLED_STAMP).exists()


def create_command(name: str, cache: Path, log: Callable[[str], None]) -> list[str]:
    """The command that starts the peer, whose packages are installed if they are missing. Raises PeerUnavailableError."""
    folder = folder_of(name, cache)
    if not is_installed(name, cache):
        _install(name, folder, log)
    # Node resolves packages from the folder of the module.
    program = shutil.copy(PEERS / name / "server.mjs", folder / "server.mjs")
    return [str(folder / "node_modules" / "node" / "bin" / "node"), str(program)]


def _install(name: str, folder: Path, log: Callable[[str], None]) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise PeerUnavailableError("npm is missing, or its node (apt install npm)")
    packages = [f"{package}@{version}" for package, version in versions(name).items()]
    log(f"{name}: npm installs {' '.join(packages)} into {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flags = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel", "error")
    done = subprocess.run(["npm", "install", *flags, "--prefix", str(folder), *packages], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise PeerUnavailableError(f"npm could not install it: {' '.join(done.stderr.split())[:300]}")
    (folder / INSTALLED_STAMP).touch()

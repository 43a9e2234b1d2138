"""Packs of unreachable objects: their `.keep` file has the time since when no ref reaches the objects; repacks leave them alone."""

import contextlib
import re
from collections.abc import Collection
from pathlib import Path

from storage.git.packing import packs

UNREACHABLE_SECONDS = 14 * 24 * 3600.0

_MARK = re.compile(rb"unreachable since (\d+)\n")


def mark_unreachable(path: Path, name: str, moment: float) -> None:
    """Marks a pack, which need not exist yet, as one of objects that are unreachable since `moment`, in seconds since 1970."""
    (packs.folder_of(path) / f"{name}.keep").write_bytes(b"unreachable since %d\n" % moment)


def set_mark(path: Path, name: str, moment: float | None) -> None:
    """Marks a pack as one of objects that are unreachable since `moment`, unless its mark is newer; None removes its mark."""
    file = packs.folder_of(path) / f"{name}.keep"
    try:
        mark = _MARK.fullmatch(file.read_bytes())
    except FileNotFoundError:
        mark = None
    if moment is None and mark is not None:
        file.unlink(missing_ok=True)
    elif moment is not None and (mark is None or int(mark[1]) < int(moment)):
        mark_unreachable(path, name, moment)


def list_packs(path: Path) -> tuple[set[str], set[str]]:
    """The packs to replace, and those of unreachable objects. A pack that git keeps for a running push is neither."""
    listed, unreachable = set(), set()
    for name in packs.list_packs(path):
        try:
            mark = _MARK.fullmatch((packs.folder_of(path) / f"{name}.keep").read_bytes())
        except FileNotFoundError:
            listed.add(name)
        else:
            if mark is not None:
                unreachable.add(name)
    return listed, unreachable


def list_expired(path: Path, names: Collection[str], moment: float) -> list[str]:
    """Those of these packs of unreachable objects whose time has come; git sets the time of a pack when it finds an object there again."""
    expired = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            mark = _MARK.fullmatch((packs.folder_of(path) / f"{name}.keep").read_bytes())
            found_at = (packs.folder_of(path) / f"{name}.pack").stat().st_mtime
            if mark is not None and max(float(mark[1]), found_at) <= moment - UNREACHABLE_SECONDS:
                expired.append(name)
    return expired

"""The processes that a process has started, as /proc shows them: `ps` takes as long as a git program."""

from collections.abc import Collection
from pathlib import Path


def children_of(parents: Collection[int]) -> dict[int, str]:
    """The command lines of the processes that have one of these parents. One that has ended, and waits for its parent, is left out."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name of the program, in parentheses, may have spaces.
            _, parent, *_ = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(parent) in parents and (command := (folder / "cmdline").read_text(errors="replace")):
                found[int(folder.name)] = " ".join(command.split("\0")).strip()
        except OSError:
            # It has ended since.
            continue
    return found

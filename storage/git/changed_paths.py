"""The paths of files that differ between two commits, without their contents and without renames."""

import pygit2

from storage.git.diff import read_tree_entries, tree_id
from storage.git.repository import DamagedRepository, Repository

MAX_PATHS = 20_000
_MAX_TREES = 20_000
_FOLDER = b"40000"


def changed_paths(repository: Repository, old: str | None, oid: str) -> set[str] | None:
    """Returns the paths that differ between the commits `old` (a full id; None: the empty tree) and `oid`.

    None if there are more than MAX_PATHS, or in more than _MAX_TREES folders. Raises UnknownCommit, DamagedRepository.
    """
    handle = repository.handle
    found: set[str] = set()
    trees = 0
    try:
        pending: list[tuple[bytes, str | None, str | None]] = [(b"", tree_id(repository, old) if old else None, tree_id(repository, oid))]
        while pending:
            prefix, *pair = pending.pop()
            sides = [dict(read_tree_entries(handle[each].read_raw())) if each is not None else {} for each in pair]
            for name in {name for name, _ in sides[0].items() ^ sides[1].items()}:
                entries = [side.get(name, (b"", "")) for side in sides]
                folders = [each if mode == _FOLDER else None for mode, each in entries]
                if any(folders):
                    pending.append((prefix + name + b"/", folders[0], folders[1]))
                if any(mode not in (b"", _FOLDER) for mode, _ in entries):
                    found.add((prefix + name).decode("utf-8", "replace"))
            trees += 1
            if len(found) > MAX_PATHS or trees > _MAX_TREES:
                return None
    except (pygit2.GitError, LookupError, ValueError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: the trees of {oid} cannot be read: {error}") from error
    return found

"""Commits, pages of histories and peeled refs that earlier queries have read, as long as the refs of their project stay as they are."""

from collections.abc import Hashable
from typing import Any

from graph.context import Context
from graph.rules.git import refs
from storage.git.commit_cache import Cached, CommitCacheKey


def find(context: Context, project_id: int, name: Hashable | None) -> Any:
    """What `put` has stored with this name; None if there is none, or the name is None."""
    key = _key(context, project_id, name)
    return None if key is None else context.services.commit_cache.get(key)


def put(context: Context, project_id: int, name: Hashable | None, found: Cached) -> None:
    """Stores what an object id or a name that the refs determine means; does nothing for the name None."""
    key = _key(context, project_id, name)
    if key is not None:
        context.services.commit_cache.put(key, found)


def _key(context: Context, project_id: int, name: Hashable | None) -> CommitCacheKey | None:
    version = None if name is None else refs.known_version(context, project_id)
    return None if version is None else (project_id, version, name)

"""Caches of builds in a folder: what other processes and killed ones leave there, and when they are removed."""

import asyncio
import os
from pathlib import Path

import pytest

from forgefront.runner.build_cache import BuildCache, cache_name, object_key
from forgefront.runner.executors.executor import Workspace
from forgefront.runner.forge_client import CacheRules
from forgefront.runner.trace_buffer import TraceBuffer
from storage.objects.folder_store import FolderStore
from tests.forgefront.runner.test_runner import FakeService, make_work

RULES = CacheRules("deps", ("$FOLDER/",), False)
VARIABLES = {"FOLDER": "deps", "0": "other"}


async def test_a_cache_is_saved_while_another_process_writes_it_or_was_killed_there(tmp_path: Path) -> None:
    job = make_work(FakeService(), tmp_path).job
    key = object_key(job, cache_name(job, RULES, VARIABLES))
    folder = tmp_path / "caches"
    folder.mkdir()
    (folder / f".incoming-{key}").write_bytes(b"half")
    cache, trace = BuildCache(FolderStore(folder)), TraceBuffer([], limit=10**6)
    workspace = Workspace(tmp_path / "build", "project")
    (workspace.code / "deps").mkdir(parents=True)
    (workspace.code / "deps" / "file").write_text("made")

    await cache.save(job, RULES, VARIABLES, workspace, [], trace, asyncio.Event())
    (workspace.code / "deps" / "file").unlink()
    await cache.restore(job, RULES, VARIABLES, workspace, trace, asyncio.Event())

    assert trace.next_chunk() == "Saved 1 files as the cache 'deps'.\nRestored 1 files of the cache 'deps'.\n"
    assert (workspace.code / "deps" / "file").read_text() == "made"


async def test_old_caches_are_removed_while_the_runner_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgefront.runner.build_cache.REMOVAL_INTERVAL_SECONDS", 0.01)
    store = FolderStore(tmp_path)
    async with BuildCache(store).remove_old_regularly():
        for key in ("a" * 32, "b" * 32):
            await store.put_bytes(key, b"cache")
            await asyncio.to_thread(os.utime, store.path_of(key), (1, 1))
            for _ in range(3000):
                if not await asyncio.to_thread(store.path_of(key).exists):
                    break
                await asyncio.sleep(0.01)
            assert not await asyncio.to_thread(store.path_of(key).exists)

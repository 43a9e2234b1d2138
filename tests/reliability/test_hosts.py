"""Three hosts on one PostgreSQL and bucket, of which any may die (R28)."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage import tables
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.hosts import Hosts, git, write_text_commit

KILLS = scaled_count(30)
NUMBERS = (2, 3, 4)
PUSHERS = 2
MERGERS = 2
MAX_UP_SECONDS = 6.0
"""Longest time between the start of a host and the next kill."""


@dataclass
class Load:
    """Clients that choose another host for every request. `kills` counts the kills of each host."""

    hosts: Hosts
    user: tables.User
    project: dict[str, Any]
    rng: random.Random
    kills: Counter[int] = field(default_factory=Counter)
    pushed: dict[str, str] = field(default_factory=dict)
    merged: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    is_running: bool = True

    async def request(self, kind: str, work: Callable[[int], Awaitable[Any]]) -> Any:
        """What the work returns with the number of a live host; None if it fails, which only the death of that host excuses."""
        number = self.rng.choice(sorted(self.hosts.servers))
        before = self.kills[number]
        try:
            result = await work(number)
        except (httpx.TransportError, KeyError) as error:
            result, reason = None, repr(error)
        else:
            reason = str(result)
        if result is None or (isinstance(result, str) and result.startswith("failed: ")):
            if self.kills[number] == before:
                self.unexpected.append(f"{kind} at host {number}: {reason}")
            self.done[f"{kind} failed"] += 1
            return None
        self.done[kind] += 1
        return result

    async def git(self, number: int, *arguments: str, folder: Path) -> str:
        url = self.hosts.url(number, self.project, self.user)
        output = await git(*(url if part == "URL" else part for part in arguments), folder=folder, succeeds=None)
        return output.out if output.code == 0 else f"failed: {output.err}"

    async def push(self, worker: int) -> None:
        folder, name = self.hosts.folder / f"pusher{worker}", f"refs/heads/pusher{worker}"
        turn = 0
        while self.is_running:
            turn += 1
            oid = await write_text_commit(folder, f"file{turn % 5}", f"{turn}\n")
            if await self.request("push", lambda n: self.git(n, "push", "--force", "URL", f"HEAD:{name}", folder=folder)) is not None:
                self.pushed[name] = oid
                listed = await self.request("ls-remote", lambda n: self.git(n, "ls-remote", "URL", name, folder=folder))
                if listed is not None and listed.split()[:1] != [oid]:
                    self.unexpected.append(f"{name} is {listed!r} after the push of {oid}")
                await self.request("fetch", lambda n: self.git(n, "fetch", "--quiet", "URL", "master", folder=folder))

    async def merge(self, worker: int, start: str) -> None:
        folder, turn = self.hosts.folder / f"merger{worker}", 0
        path = f"/projects/{self.project['id']}/merge_request"
        while self.is_running:
            turn += 1
            name = f"merger{worker}-{turn}"
            await git("checkout", "--quiet", "-B", name, start, folder=folder)
            oid = await write_text_commit(folder, name, "text\n")
            while await self.request("push", lambda n: self.git(n, "push", "URL", f"HEAD:refs/heads/{name}", folder=folder)) is None:  # noqa: B023
                pass
            opened = await self.request(
                "open",
                lambda n: self.api(n, "POST", f"{path}s", title=name, source_branch=name, target_branch="master"),  # noqa: B023
            )
            if opened is None or "id" not in opened:
                continue
            answer = await self.request("merge", lambda n: self.api(n, "PUT", f"{path}/{opened['id']}/merge"))  # noqa: B023
            if answer is not None and answer.get("state") == "merged":
                self.merged.append(oid)
                shown = await self.request("show", lambda n: self.api(n, "GET", f"{path}/{opened['id']}"))  # noqa: B023
                if shown is not None and shown.get("state") != "merged":
                    self.unexpected.append(f"{name} is {shown} after its merge")

    async def api(self, number: int, method: str, path: str, **body: Any) -> Any:
        answer = await self.hosts.api(number, method, path, self.user, **body)
        message = str(answer.get("message", ""))
        return f"failed: {message}" if message.startswith(("500", "503")) else answer

    async def kill(self) -> None:
        """Kills a random host, starts it again, with an empty folder at every third kill."""
        for turn in range(KILLS):
            await asyncio.sleep(self.rng.uniform(0, MAX_UP_SECONDS))
            number = self.rng.choice(NUMBERS)
            self.kills[number] += 1
            self.hosts.kill(number)
            if turn % 3 == 2:
                self.hosts.folder_of(number).rename(self.hosts.folder / f"lost{turn}")
            await asyncio.to_thread(self.hosts.start, number)
        self.is_running = False


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
class TestHosts:
    @promise("R28")
    async def test_hosts_that_are_killed_lose_nothing(self, hosts: Hosts, figure: Callable[[str], None]) -> None:
        user = await hosts.make.admin()
        for number in NUMBERS:
            await asyncio.to_thread(hosts.start, number)
        load = Load(hosts, user, await hosts.create_project(2, user, "app"), random.Random(1))
        first = hosts.folder / "pusher0"
        await git("init", "--quiet", str(first))
        start = await write_text_commit(first, "first", "text\n")
        await git("push", "--quiet", hosts.url(3, load.project, user), "HEAD:refs/heads/master", folder=first)
        for name in (*(f"pusher{number}" for number in range(1, PUSHERS)), *(f"merger{number}" for number in range(MERGERS))):
            await git("clone", "--quiet", hosts.url(4, load.project, user), str(hosts.folder / name))

        async with asyncio.TaskGroup() as group:
            group.create_task(load.kill())
            for worker in range(PUSHERS):
                group.create_task(load.push(worker))
            for worker in range(MERGERS):
                group.create_task(load.merge(worker, start))

        lost = []
        for number in NUMBERS:
            clone = hosts.folder / f"last{number}.git"
            await git("clone", "--quiet", "--mirror", hosts.url(number, load.project, user), str(clone))
            await git("fsck", "--full", "--strict", folder=clone)
            for name, oid in load.pushed.items():
                lost += [oid] if (await git("merge-base", "--is-ancestor", oid, name, folder=clone, succeeds=None)).code else []
            contained = set((await git("rev-list", "master", folder=clone)).out.split())
            lost += [oid for oid in load.merged if oid not in contained]
            line = (await git("rev-list", "--first-parent", f"{start}..master", folder=clone)).out.split()
            assert len(line) == len(contained & set(line))
        figure(f"{sum(load.kills.values())} kills, lost {len(lost)}, unexpected {len(load.unexpected)}; {dict(load.done)}")
        assert lost == []
        assert load.unexpected == [], "\n".join([*load.unexpected, *hosts.read_warnings()])
        assert load.pushed

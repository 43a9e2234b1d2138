"""Several hosts without state: server processes with folders of their own, one PostgreSQL and one bucket."""

import asyncio
import os
from itertools import cycle

import httpx
import pytest

from storage import tables
from tests.forgefront.hosts.test_balancers import COMMANDS, run_balancer
from tests.make import token_of
from tests.support.database.database_selection import ALL_DATABASES_VARIABLE
from tests.support.git.git_history import make_history
from tests.support.servers.hosts import Hosts, git, write_text_commit

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


@pytest.fixture
async def ada(hosts: Hosts) -> tables.User:
    return await hosts.make.admin()


class TestGit:
    async def test_a_push_through_one_host_is_fetched_through_the_others_at_once(self, hosts: Hosts, ada: tables.User) -> None:
        for number in (2, 3, 4):
            await asyncio.to_thread(hosts.start, number)
        project = await hosts.create_project(2, ada, "app")
        folders = {number: hosts.folder / f"clone{number}" for number in (2, 3, 4)}
        await git("clone", "--quiet", hosts.url(2, project, ada), str(folders[2]))
        await git("checkout", "-q", "-b", "master", folder=folders[2], succeeds=None)
        for number in (3, 4):
            await git("clone", "--quiet", hosts.url(number, project, ada), str(folders[number]))

        # Each request goes to another host than the one before.
        for turn, (writer, reader) in enumerate([(2, 3), (3, 4), (4, 2), (2, 4), (3, 2)]):
            if turn:
                await git("pull", "--quiet", "--ff-only", hosts.url(writer, project, ada), "master", folder=folders[writer])
            oid = await write_text_commit(folders[writer], f"file{turn}", "text\n")
            await git("push", "--quiet", hosts.url(writer, project, ada), "HEAD:refs/heads/master", folder=folders[writer])

            listed = await git("ls-remote", hosts.url(reader, project, ada), "refs/heads/master")
            commit = await hosts.api(reader, "GET", f"/projects/{project['id']}/repository/commits/{oid}", ada, 200)

            assert listed.out.split()[0] == commit["id"] == oid
        last = hosts.folder / "last"
        await git("clone", "--quiet", hosts.url(3, project, ada), str(last))
        await git("fsck", "--full", "--strict", folder=last)
        assert {path.name for path in last.iterdir()} == {".git", *(f"file{turn}" for turn in range(5))}

    async def test_an_empty_host_serves_its_first_clone(self, hosts: Hosts, ada: tables.User) -> None:
        make_history(hosts.folder / "source", commits=30)
        hosts.start(2)
        project = await hosts.create_project(2, ada, "app", hosts.folder / "source")
        hosts.kill(2)
        hosts.start(3)
        assert not hosts.repository_of(3, project["id"]).exists()

        await git("clone", "--quiet", "--mirror", hosts.url(3, project, ada), str(hosts.folder / "clone.git"))

        source = await git("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags", folder=hosts.folder / "source")
        cloned = await git("for-each-ref", "--format=%(objectname) %(refname)", folder=hosts.folder / "clone.git")
        assert cloned.out == source.out


class TestMerges:
    async def test_two_hosts_merge_into_one_branch(self, hosts: Hosts, ada: tables.User) -> None:
        hosts.start(2)
        hosts.start(3)
        project = await hosts.create_project(2, ada, "app")
        folder = hosts.folder / "clone"
        await git("clone", "--quiet", hosts.url(2, project, ada), str(folder))
        await git("checkout", "-q", "-b", "master", folder=folder, succeeds=None)
        start = await write_text_commit(folder, "first", "text\n")
        names = [f"branch{number}" for number in range(6)]
        heads = []
        for name in names:
            await git("checkout", "--quiet", "-b", name, start, folder=folder)
            heads.append(await write_text_commit(folder, name, "text\n"))
        await git("push", "--quiet", hosts.url(3, project, ada), "refs/heads/*:refs/heads/*", folder=folder)
        path = f"/projects/{project['id']}/merge_request"
        opened = [
            await hosts.api(number, "POST", f"{path}s", ada, 200, title=name, source_branch=name, target_branch="master")
            for number, name in zip(cycle((2, 3)), names, strict=False)
        ]

        async def merge(number: int, request_id: int) -> str:
            while (answer := await hosts.api(number, "PUT", f"{path}/{request_id}/merge", ada)).get("message", "").startswith("409"):
                pass
            return str(answer.get("state"))

        merged = await asyncio.gather(*(merge(number, each["id"]) for number, each in zip(cycle((3, 2)), opened, strict=False)))

        tip = (await git("ls-remote", hosts.url(2, project, ada), "refs/heads/master")).out.split()[0]
        await git("fetch", "--quiet", hosts.url(3, project, ada), "master", folder=folder)
        line = (await git("rev-list", "--first-parent", f"{start}..{tip}", folder=folder)).out.split()
        assert merged == ["merged"] * len(names)
        assert len(line) == len(names)
        contained = (await git("rev-list", tip, folder=folder)).out.split()
        assert set(heads) <= set(contained)


class TestBucketAway:
    async def test_writes_are_refused_with_a_reason_and_reads_go_on(self, hosts: Hosts, ada: tables.User) -> None:
        server = await asyncio.to_thread(hosts.start, 2)
        await self.refuse_a_local_folder(hosts)
        project = await hosts.create_project(2, ada, "app")
        folder = hosts.folder / "clone"
        await git("clone", "--quiet", hosts.url(2, project, ada), str(folder))
        await git("checkout", "-q", "-b", "master", folder=folder, succeeds=None)
        first = await write_text_commit(folder, "first", "text\n")
        await git("push", "--quiet", hosts.url(2, project, ada), "HEAD:master", "HEAD:side", folder=folder)
        await git("checkout", "--quiet", "-b", "side", folder=folder)
        await write_text_commit(folder, "side", "text\n")
        await git("push", "--quiet", hosts.url(2, project, ada), "HEAD:side", folder=folder)
        path = f"/projects/{project['id']}/merge_request"
        opened = await hosts.api(2, "POST", f"{path}s", ada, 200, title="side", source_branch="side", target_branch="master")
        second = await write_text_commit(folder, "second", "text\n")
        before = hosts.bucket.objects()
        hosts.bucket.stop()

        refused = await git("push", hosts.url(2, project, ada), "HEAD:master", folder=folder, succeeds=False)
        await hosts.api(2, "PUT", f"{path}/{opened['id']}/merge", ada, 503)
        listed = await git("ls-remote", hosts.url(2, project, ada), "refs/heads/master")
        # A good answer counts for ten seconds.
        await asyncio.sleep(12)
        ready = await asyncio.to_thread(httpx.get, f"{server.url}/-/readiness", timeout=30)

        assert "The object store of the service cannot be reached; nothing was changed. Try again." in refused.err
        assert listed.out.split()[0] == first
        assert ready.status_code == 503
        assert ready.json()["checks"]["repositories bucket"] == {"status": "unavailable", "problem": "it cannot be reached"}
        assert hosts.bucket.objects() == before

        hosts.bucket.start()
        await git("push", "--quiet", hosts.url(2, project, ada), "HEAD:master", folder=folder)
        listed = await git("ls-remote", hosts.url(2, project, ada), "refs/heads/master")
        assert listed.out.split()[0] == second

    async def refuse_a_local_folder(self, hosts: Hosts) -> None:
        """A second host with uploads in its data folder does not start."""
        hosts.settings["uploads_url"] = ""
        with pytest.raises(AssertionError):
            await asyncio.to_thread(hosts.start, 3)
        del hosts.settings["uploads_url"]
        log = next(hosts.folder.glob("host3-*.log")).read_text()
        assert "this host has uploads in its data folder" in log
        assert "Set FORGEFRONT_UPLOADS_URL to s3://… on all hosts" in log


@pytest.mark.parametrize("balancer", COMMANDS if os.environ.get(ALL_DATABASES_VARIABLE) else ["nginx"])
class TestBalancer:
    async def test_pushes_through_any_host_and_dead_ones(self, hosts: Hosts, ada: tables.User, balancer: str) -> None:
        """The requests of one push go to different hosts. test_rolling_upgrades.py pushes through HAProxy, as hosts go and come back."""
        for number in (2, 3):
            await asyncio.to_thread(hosts.start, number)
        project = await hosts.create_project(2, ada, "app")
        with run_balancer(balancer, hosts.folder, list(hosts.servers.values())) as address:
            url = f"{address.replace('://', f'://me:{token_of(ada)}@')}/{project['path_with_namespace']}.git"
            folder = hosts.folder / "clone"
            await git("clone", "--quiet", url, str(folder))
            for turn in range(6):
                if turn == 4:
                    hosts.kill(2)
                oid = await write_text_commit(folder, f"file{turn}", "text\n")
                await git("push", "--quiet", url, "HEAD:refs/heads/master", folder=folder)
                assert (await git("ls-remote", url, "refs/heads/master")).out.split()[0] == oid

"""The load balancers of docs/operations.md, as they are written there, before two real servers on PostgreSQL."""

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from storage import tables
from tests.forgefront.server.test_streams import StreamServers
from tests.make import DataFactory, token_of
from tests.support.database.databases import free_port
from tests.support.servers.server_process import ServerProcess, run_server
from tests.support.waiting import wait_until

MANUAL = Path(__file__).parents[3] / "docs" / "operations.md"
ADDRESSES = ("10.0.0.11:8080", "10.0.0.12:8080")
BLOCK = re.compile(r"^```(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REQUESTS = 20
CHECKS_UNTIL_DOWN = 4
"""Failed checks after which HAProxy sends no request to a server, with some to spare."""

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


def example(language: str) -> str:
    """The only example of the manual in this language."""
    (found,) = (text for name, text in BLOCK.findall(MANUAL.read_text()) if name == language)
    return str(found)


def replace_once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is not in the example"
    return text.replace(old, new)


def haproxy_command(folder: Path, port: int, addresses: list[str]) -> list[str]:
    config = replace_once(example("haproxy"), "maxconn 8000", "maxconn 1000")
    config = replace_once(config, "bind :443 ssl crt /etc/ssl/forge.example.com.pem alpn h2,http/1.1", f"bind 127.0.0.1:{port}")
    config = replace_once(config, "bind :22\n", f"bind 127.0.0.1:{free_port()}\n")
    # A test waits until servers have failed several checks.
    config = config.replace("inter 1s", "inter 200ms")
    for given, address in zip(ADDRESSES, addresses, strict=True):
        assert config.count(given) == 2, "one group of servers that can write, and one of those that can read"
        config = config.replace(given, address)
    (folder / "haproxy.cfg").write_text(config)
    return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]


def nginx_command(folder: Path, port: int, addresses: list[str]) -> list[str]:
    site, upstream = example("nginx"), example("nginx-upstream")
    site = replace_once(site, "upstream forgefront { server 127.0.0.1:8080; keepalive 32; }\n", upstream)
    site = re.sub(r"    listen 443 ssl http2;.*\n", f"    listen 127.0.0.1:{port};\n", site)
    site = re.sub(r"    ssl_certificate.*\n", "", site)
    for given, address in zip(ADDRESSES, addresses, strict=True):
        site = replace_once(site, given, address)
    temporary = "".join(f"    {name}_temp_path {folder};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off;\nuser root;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\n    access_log off;\n{temporary}{site}}}\n"
    )
    return ["nginx", "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf")]


COMMANDS: dict[str, Callable[[Path, int, list[str]], list[str]]] = {"haproxy": haproxy_command, "nginx": nginx_command}


@contextmanager
def run_balancer(name: str, folder: Path, servers: list[ServerProcess]) -> Iterator[str]:
    """The URL of a running balancer before the servers."""
    port = free_port()
    if shutil.which(name) is None:
        pytest.skip(f"NOT RUN: {name} (apt install {name})")
    process = subprocess.Popen(COMMANDS[name](folder, port, [server.url.removeprefix("http://") for server in servers]))
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/-/readiness").status_code == 200:
                    break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


@dataclass
class BalancedServers:
    """Two servers over one data folder and database behind a balancer, and a project whose owner calls them."""

    name: str
    url: str
    servers: list[ServerProcess]
    owner: tables.User
    project: tables.Project
    build: tables.Build

    @property
    def project_path(self) -> str:
        return f"{self.owner.username}%2F{self.project.path}"

    def client(self) -> httpx.AsyncClient:
        """Opens a connection for each request, which the balancer may send to any server."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"PRIVATE-TOKEN": token_of(self.owner), "Connection": "close"}, timeout=10, trust_env=False
        )


@pytest.fixture(params=COMMANDS)
async def forge(
    request: pytest.FixtureRequest, make: DataFactory, database_url: str, tmp_path: Path, dialect: str
) -> AsyncIterator[BalancedServers]:
    owner = await make.user("olga")
    project = await make.project(owner=owner, history={"commits": 2}, builds_enabled=True)
    build = await make.build(project, "f" * 40)
    with ExitStack() as stack:
        logs = [tmp_path / "0.log", tmp_path / "1.log"]
        servers = [stack.enter_context(run_server(tmp_path, database_url, log, trusted_proxies="127.0.0.1")) for log in logs]
        url = stack.enter_context(run_balancer(request.param, tmp_path, servers))
        yield BalancedServers(request.param, url, servers, owner, project, build)


async def test_requests_pass_and_a_server_that_dies_is_left_out(forge: BalancedServers, tmp_path: Path) -> None:
    """The two servers start once for both."""
    path = f"/api/v3/projects/{forge.project_path}/issues"
    async with forge.client() as client:
        assert {(await client.get(path)).status_code for _ in range(REQUESTS)} == {200}
        assert (await client.get("/-/metrics")).status_code == 403
    assert all(server.log_entries(path=path) for server in forge.servers)
    await check_streams_and_files(forge, tmp_path)
    if forge.name == "haproxy":
        await check_reads_without_repositories(forge, tmp_path, path)

    async with forge.client() as client:
        forge.servers[0].kill()
        answers = [await client.post(path, json={"title": f"Issue {number}"}) for number in range(REQUESTS)]
    assert [answer.status_code for answer in answers] == [200] * REQUESTS
    assert [answer.json()["iid"] for answer in answers] == list(range(1, REQUESTS + 1))


async def check_reads_without_repositories(forge: BalancedServers, folder: Path, path: str) -> None:
    """Without their folder no server is ready, as without a bucket or with a full disk. The balancer goes on to use them."""
    (folder / "repositories").rename(folder / "away")
    failed = {"path": "/-/readiness", "status": 503}
    await wait_until(lambda: all(len(server.log_entries(**failed)) >= CHECKS_UNTIL_DOWN for server in forge.servers), 60)
    async with forge.client() as client:
        for _ in range(REQUESTS):
            response = await client.get(path)
            assert response.status_code == 200, response.text
    (folder / "away").rename(folder / "repositories")


async def check_streams_and_files(forge: BalancedServers, folder: Path) -> None:
    streams = StreamServers([forge.url], [], forge.owner, [forge.build])
    async with streams.stream() as reader:
        await streams.start(0)
        assert await reader.builds(1) == [forge.build.id]

    address = forge.url.replace("://", f"://me:{token_of(forge.owner)}@")
    for arguments in (
        ["clone", "--quiet", f"{address}/{forge.owner.username}/{forge.project.path}.git", "clone"],
        ["-C", "clone", "-c", "user.name=Olga", "-c", "user.email=o@x.org", "commit", "--quiet", "--allow-empty", "-m", "Change"],
        ["-C", "clone", "push", "--quiet"],
    ):
        done = await asyncio.to_thread(subprocess.run, ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

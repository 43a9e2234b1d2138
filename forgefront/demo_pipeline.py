"""The demo's pipeline: a project with a `.gitlab-ci.yml`, whose builds are run for real, by the runner in the box."""

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from forgefront.config import Config
from forgefront.demo_merge_requests import Teller
from forgefront.runner.loop import Runner
from forgefront.runner.service import Service
from forgefront.server import listen
from storage.git.merge import Signature
from storage.git.repositories import Repositories
from storage.git.writing import write_commit

BRANCH = "main"
FILES = {
    ".gitlab-ci.yml": """\
stages: [build, test, deploy]

compile:
  stage: build
  script:
    - mkdir -p out
    - sed 's/NAME/world/' hello.txt.in > out/hello.txt
    - cat out/hello.txt
  artifacts:
    name: hello
    paths: [out/]

unit:
  stage: test
  script:
    - test "$(sed 's/NAME/world/' hello.txt.in)" = 'Hello, world!'
    - echo 'covered 92.5 %'
  coverage: '/covered (\\d+\\.\\d+) %/'

style:
  stage: test
  script: ["! grep -n ' $' hello.txt.in"]

package:
  stage: deploy
  script:
    - tar -cf hello.tar hello.txt.in README.md
    - tar -tf hello.tar
  artifacts:
    name: package
    paths: [hello.tar]
  only: [main]
""",
    "README.md": "# Hello\n\nA project whose pushes are built: see `.gitlab-ci.yml`.\n",
    "hello.txt.in": "Hello, NAME!\n",
}
BUILDS = 4
STARTING_SECONDS = 30.0


@dataclass(slots=True)
class Piped:
    """The project with the pipeline, and the token of a runner that serves it alone."""

    project_id: int
    runner_token: str


async def push(teller: Teller, repositories: Repositories, group: str) -> Piped:
    """Makes the project and its first commit, which asks for builds."""
    made: dict[str, Any] = await teller.do(
        "dev", "CreateProject", name="pipeline", groupPath=group, visibility="PRIVATE", description="Built by a runner at every push."
    )
    path = str(made["id"])
    signature = Signature("Dev", "dev@example.com", teller.clock())
    files = {name: text.encode() for name, text in FILES.items()}
    oid = await repositories.read(
        made["id"], lambda repository: write_commit(repository, None, files, "Say hello\n\nAnd build it at every push.", signature)
    )
    await teller.do("dev", "CreateBranch", projectPath=path, name=BRANCH, ref=oid)
    runner: str = await teller.do("dev", "CreateRunner", projectPath=path, description="The demo's own")
    return Piped(made["id"], runner)


async def run(config: Config, token: str) -> None:
    """Runs the builds of the pipeline: serves the folder on a port of its own for as long as that takes."""
    from forgefront.app import App

    listener = listen("127.0.0.1", 0)
    config = config.model_copy(update={"host": "127.0.0.1", "port": listener.getsockname()[1], "external_url": None, "ssh_port": None})
    server = uvicorn.Server(uvicorn.Config(App(config), log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(STARTING_SECONDS):
            while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn tells nobody when it has started
                await asyncio.sleep(0.02)
        service = Service(config.base_url, token, name="demo")
        try:
            with tempfile.TemporaryDirectory(prefix="forgefront-demo-") as folder:
                for _ in range(BUILDS):
                    await Runner(service, token, Path(folder), at_once=1, told=lambda job, ended: None).run(once=True)
        finally:
            await service.close()
    finally:
        server.should_exit = True
        with contextlib.suppress(SystemExit):
            await serving

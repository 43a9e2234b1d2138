"""The demo's pipeline: a project with a `.gitlab-ci.yml`, whose builds are run by the included runner."""

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from forgefront.config import Config
from forgefront.demo.demo_merge_requests import DemoBuilderProtocol
from forgefront.runner.build_runner import BuildRunner, Forge
from forgefront.runner.executors.shell import ShellExecutor
from forgefront.runner.forge_client import ForgeClient
from forgefront.server.listeners import create_listener
from storage.git.commit_writer import CommitSignature, write_commit
from storage.git.repositories import Repositories

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
BUILD_COUNT = 4
START_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True)
class DemoPipeline:
    """The project with the pipeline, and the token of its runner, which serves no other project."""

    project_id: int
    runner_token: str


async def push_pipeline(builder: DemoBuilderProtocol, repositories: Repositories, group: str) -> DemoPipeline:
    """Creates the project and its first commit, which creates builds."""
    created: dict[str, Any] = await builder.run_mutation(
        "dev", "CreateProject", name="pipeline", groupPath=group, visibility="PRIVATE", description="Built by a runner at every push."
    )
    path = str(created["id"])
    signature = CommitSignature("Dev", "dev@example.com", builder.clock())
    files = {name: text.encode() for name, text in FILES.items()}
    oid = await repositories.read(
        created["id"], lambda repository: write_commit(repository, None, files, "Say hello\n\nAnd build it at every push.", signature)
    )
    await builder.run_mutation("dev", "CreateBranch", projectPath=path, name=BRANCH, ref=oid)
    runner: str = await builder.run_mutation("dev", "CreateRunner", projectPath=path, description="The demo's own")
    return DemoPipeline(created["id"], runner)


async def run_builds(config: Config, token: str) -> None:
    """Runs the builds of the pipeline, and serves the folder on a free port meanwhile."""
    from forgefront.app import App

    listener = create_listener("127.0.0.1", 0)
    config = config.model_copy(update={"host": "127.0.0.1", "port": listener.getsockname()[1], "external_url": None, "ssh_port": None})
    server = uvicorn.Server(uvicorn.Config(App(config), log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for a finished startup
                await asyncio.sleep(0.02)
        service = ForgeClient(config.base_url, token, name="demo")
        try:
            with tempfile.TemporaryDirectory(prefix="forgefront-demo-") as folder:
                for _ in range(BUILD_COUNT):
                    runner = BuildRunner(
                        [Forge(service, token)],
                        Path(folder),
                        ShellExecutor(),
                        max_concurrent=1,
                        on_build_end=lambda forge, job, ended: None,
                    )
                    await runner.run(only_one=True)
        finally:
            await service.close()
    finally:
        server.should_exit = True
        with contextlib.suppress(SystemExit):
            await serving

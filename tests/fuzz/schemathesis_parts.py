"""schemathesis on v3 and on the graph, as each kind of caller in turn."""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.fuzz.findings import FuzzPart
from tests.fuzz.instance import CALLERS, HANG_SECONDS, FuzzServer

ROOT = Path(__file__).parents[2]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,closed_shape"
GRAPH_CHECKS = "closed_shape"
"""Its own check for faults takes every error of GraphQL for one."""
MIN_SECONDS = 8
FAILURE = re.compile(r"^_+ (?P<call>.+?) _+$(?P<body>.*?)(?=^(?:_{5,}|={5,}))", re.MULTILINE | re.DOTALL)
CHECK = re.compile(r"^- (?P<check>.+)$", re.MULTILINE)
EXCLUDED_OPERATIONS = "^(testHook|deleteUser|blockUser|unblockUser)$"
EXCLUDED_GRAPH_OPERATIONS = "^Mutation.(testHook|redeliverHook|deleteUser|blockUser|resetPrivateToken)$"
"""Operations that would call somebody outside, or take the callers' accounts and tokens away."""


def known_values(instance: FuzzServer) -> str:
    """Values of existing objects by the names of parameters, as JSON."""
    edge_cases = instance.edge_cases
    numbers = list(range(1, 16))
    paths = [f"acme/{edge_cases.week.web.path}", *(str(project.id) for project in edge_cases.projects)]
    shas = [*list(edge_cases.week.oids.values())[:6], "master", "stable", "topic"]
    words = dict.fromkeys(("id", "path", "projectPath", "project_id", "projects"), paths)
    words |= dict.fromkeys(("sha", "rev", "ref", "ref_name", "from", "to", "name"), shas)
    words |= {name: ["master", "topic", "stable"] for name in ("source_branch", "target_branch", "sourceBranch", "targetBranch")}
    words |= {name: ["acme", str(edge_cases.week.group.id)] for name in ("groupPath", "fullPath")}
    return json.dumps({"words": words, "numbers": numbers})


async def fuzz_v3(part: FuzzPart, instance: FuzzServer) -> None:
    address = f"{instance.server.url}/api/v3/openapi.json"
    await _fuzz_callers(part, instance, address, [f"--checks={CHECKS}", f"--exclude-operation-id-regex={EXCLUDED_OPERATIONS}"])


async def fuzz_graph(part: FuzzPart, instance: FuzzServer) -> None:
    arguments = [
        f"--url={instance.server.url}/graphql",
        f"--checks={GRAPH_CHECKS}",
        "--mode=positive",
        f"--exclude-name-regex={EXCLUDED_GRAPH_OPERATIONS}",
    ]
    await _fuzz_callers(part, instance, str(ROOT / "schema.graphql"), arguments)


async def _fuzz_callers(part: FuzzPart, instance: FuzzServer, location: str, arguments: list[str]) -> None:
    for number, caller in enumerate(CALLERS):
        seconds = part.seconds_left / (len(CALLERS) - number)
        await _run(part, instance, caller, location, [*arguments, f"--max-time={max(int(seconds), MIN_SECONDS)}"])
        for line in instance.read_faults():
            part.report(f"as {caller}: {title_of_log_line(line)}", line)
        if not instance.is_alive:
            part.report(f"as {caller}: the server has ended", instance.server.log.read_text()[-2_000:])
            return


async def _run(part: FuzzPart, instance: FuzzServer, caller: str, location: str, arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="forgefront-fuzz-report-") as folder:
        command = [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "--no-color", "run", location),
            *("--workers=1", f"--seed={part.seed}", f"--max-response-time={HANG_SECONDS}", f"--request-timeout={HANG_SECONDS + 10}"),
            *("--continue-on-failure", "--warnings=off", "--suppress-health-check=all", "--generation-database=none", "--no-shrink"),
            *arguments,
            *(f"--header={name}: {value}" for name, value in instance.headers(caller).items()),
        ]
        settings = {"SCHEMATHESIS_HOOKS": "tests.fuzz.checks", "FORGEFRONT_FUZZ_VALUES": known_values(instance)}
        environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT), "COLUMNS": "140"}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed = (await process.communicate())[0].decode(errors="replace")
    tested = re.search(r"(\d+) generated", printed)
    part.iterations += int(tested[1]) if tested else 0
    found = list(FAILURE.finditer(printed))
    for failure in found:
        for check in CHECK.findall(failure["body"]):
            part.report(f"as {caller}: {failure['call']}: {check}", failure["body"])
    if process.returncode and not found:
        part.report(f"as {caller}: schemathesis ended with {process.returncode}", printed[-4_000:])


def title_of_log_line(line: str) -> str:
    """A line of the log without what differs from request to request."""
    if not line.startswith("{"):
        return line[:150]
    entry = json.loads(line)
    last = str(entry.get("exception", "")).strip().splitlines()[-1:] or [""]
    return f"log: {entry.get('event', '')} {last[0]}"[:200]

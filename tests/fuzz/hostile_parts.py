"""Hostile packs, cursors, uploads and `.gitlab-ci.yml` files, over the network."""

import base64
import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
from graphql import GraphQLObjectType, get_named_type

from graph.schema import graphql_schema
from tests.fuzz.findings import FuzzPart
from tests.fuzz.instance import CALLERS, DEADLINE_SECONDS, HANG_SECONDS, FuzzServer
from tests.fuzz.schemathesis_parts import title_of_log_line
from tests.rest_v3.support.response_shapes import check_error
from tests.support.git.hostile_packs import MEGABYTE, push_command, random_pack
from tests.support.queries.fuzz_values import FUZZ_NUMBERS, FUZZ_STRINGS, FUZZ_TIMESTAMPS

GRAPH_CODES = {"BAD_REQUEST", "NOT_FOUND", "FORBIDDEN", "UNAUTHENTICATED", "LIMIT_EXCEEDED"}
PUSH_SECONDS = 60.0
MAX_PACK_BYTES = 64 * MEGABYTE
"""To which an object may unpack. Larger ones take seconds to make; tests/storage/git/protocol/test_hostile_packs.py has them."""


async def fuzz_packs(part: FuzzPart, instance: FuzzServer) -> None:
    """Every push of one is answered in time, in git's own words, and the repository stays whole."""
    project = instance.edge_cases.projects[0]
    path = f"/acme/{project.path}.git/git-receive-pack"
    async with instance.client() as client:
        for seed in part.seeds():
            pack = random_pack(seed, max_bytes=MAX_PACK_BYTES)
            body = push_command(pack, f"refs/heads/fuzz{seed}") + pack.data
            headers = {"Content-Type": "application/x-git-receive-pack-request", **instance.headers("developer")}
            response = await send(part, seed, "a hostile push", client, "POST", path, content=body, headers=headers, timeout=PUSH_SECONDS)
            if response is not None and response.status_code >= 500:
                part.report(f"a hostile push answers {response.status_code}", f"{pack.name}: {response.text[:500]}", seed)
            report_faults(part, instance, seed, "a hostile push")
        response = await client.get(f"/acme/{project.path}.git/info/refs?service=git-upload-pack", headers=instance.headers("developer"))
        if response.status_code != 200:
            part.report("the repository cannot be read after the pushes", response.text[:500])


CURSOR_VALUES: tuple[Any, ...] = (
    *(True, None, [], {}, [[1]], -1, 0, 2**31, 2**63, 2**64, 10**30, 1e309, 0.5, "a\0b", "\ud800", "x" * 5_000),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2016-01-01T00:00:00Z", *FUZZ_TIMESTAMPS, *FUZZ_NUMBERS, *FUZZ_STRINGS[:6]),
)


async def fuzz_cursors(part: FuzzPart, instance: FuzzServer) -> None:
    """Forged cursors of every list of a project are answered with BAD_REQUEST, or as any place in the list."""
    kind: Any = graphql_schema.type_map["Project"]
    assert isinstance(kind, GraphQLObjectType)
    lists = [
        name
        for name, found in kind.fields.items()
        if "after" in found.args and "edges" in getattr(get_named_type(found.type), "fields", ())
    ]
    path = f"acme/{instance.edge_cases.projects[0].path}"
    marks = await collect_cursors(instance, path, lists)
    async with instance.client() as client:
        for seed in part.seeds():
            chance = random.Random(seed)
            name = chance.choice(lists)
            cursor = forge_cursor(chance, marks.get(name, []))
            side = chance.choice(("first: 2, after", "last: 2, before"))
            if side.startswith("last") and "before" not in kind.fields[name].args:
                side = "first: 2, after"
            inner = f"{name}({side}: $c) {{ edges {{ cursor }} pageInfo {{ hasNextPage }} }}"
            query = f'query Q($c: String) {{ project(path: "{path}") {{ {inner} }} }}'
            text = json.dumps({"query": query, "variables": {"c": cursor}})
            caller = chance.choice(("developer", "administrator"))
            await send_operation(part, instance, client, seed, f"a cursor of {name}", text, caller)


async def collect_cursors(instance: FuzzServer, path: str, lists: list[str]) -> dict[str, list[str]]:
    """Real cursors of each list, to be spoiled."""
    found: dict[str, list[str]] = {}
    async with instance.client() as client:
        for name in lists:
            query = f'{{ project(path: "{path}") {{ {name}(first: 2) {{ edges {{ cursor }} }} }} }}'
            response = await client.post("/graphql", json={"query": query}, headers=instance.headers("administrator"))
            data = (response.json().get("data") or {}).get("project") or {}
            found[name] = [edge["cursor"] for edge in (data.get(name) or {}).get("edges", ())]
    return found


def forge_cursor(chance: random.Random, real: list[str]) -> str:
    """A cursor that no list gave: values of a real one replaced, bits turned over, or no cursor at all."""
    if not real or chance.random() < 0.15:
        return chance.choice((*FUZZ_STRINGS[:8], "x", "=", "bnVsbA", "W10", "e30", "W251bGxd", "!" * 2_000))
    raw = base64.urlsafe_b64decode((cursor := chance.choice(real)) + "=" * (-len(cursor) % 4))
    values = json.loads(raw)
    match chance.choice(("value", "value", "value", "longer", "shorter", "bits", "mark")):
        case "value":
            values[chance.randrange(1, len(values)) if len(values) > 1 else 0] = chance.choice(CURSOR_VALUES)
        case "longer":
            values.append(chance.choice(CURSOR_VALUES))
        case "shorter":
            values = values[: chance.randrange(len(values))]
        case "mark":
            values[0] = chance.choice(CURSOR_VALUES)
        case "bits":
            spoiled = bytearray(raw)
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
            return base64.urlsafe_b64encode(bytes(spoiled)).decode().rstrip("=")
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


async def fuzz_uploads(part: FuzzPart, instance: FuzzServer) -> None:
    """Multipart forms that no client sends, of every kind of caller."""
    project = instance.edge_cases.projects[0]
    async with instance.client() as client:
        for seed in part.seeds():
            chance = random.Random(seed)
            caller = chance.choice(list(CALLERS))
            kind, body = multipart_body(chance)
            headers = {"Content-Type": kind, **instance.headers(caller)}
            what = f"an upload as {caller}"
            response = await send(part, seed, what, client, "POST", f"/api/v3/projects/{project.id}/uploads", content=body, headers=headers)
            if response is not None:
                check_v3_response(part, seed, what, response)
            report_faults(part, instance, seed, what)


def multipart_body(chance: random.Random) -> tuple[str, bytes]:
    boundary = chance.choice(("limit", "x" * 70, "a b", "-", "é"))
    written = boundary.encode()
    parts = []
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        name = chance.choice(("file", "file", "file", "id", "private_token", "x", "", "a\0b", "file[]"))
        file_name = chance.choice(
            (None, "a.txt", "a.txt", "", "../../etc/passwd", "\0", "a" * 5_000, "\xff.png", '"', "CON", ".", "a\r\nb", "é.svg")
        )
        disposition = f'form-data; name="{name}"' + (f'; filename="{file_name}"' if file_name is not None else "")
        header = chance.choice(("Content-Disposition", "Content-Disposition", "content-disposition", "Content-Type", "X" * 5_000))
        content = chance.choice((b"", b"x", b"<script>", chance.randbytes(300), b"\r\n--" + written, b"x" * 70_000))
        parts.append(b"--" + written + b"\r\n" + f"{header}: {disposition}".encode("latin-1", "replace") + b"\r\n\r\n" + content + b"\r\n")
    body = b"".join(parts) + chance.choice((b"--" + written + b"--\r\n", b"--" + written + b"--", b"", b"--" + written))
    if chance.random() < 0.3 and body:
        spoiled = bytearray(body)
        for _ in range(chance.choice((1, 3, 20))):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        body = bytes(spoiled)
    kind = chance.choice(
        (f"multipart/form-data; boundary={boundary}", f'multipart/form-data; boundary="{boundary}"', "multipart/form-data")
    )
    return kind.encode("ascii", "replace").decode(), body


YAML_KEYS = (
    *("stages", "image", "services", "before_script", "variables", "cache", "job", "test", "deploy", ".hidden", "script", "only", "except"),
    *("tags", "when", "allow_failure", "artifacts", "coverage", "stage", "dependencies", "types", "type", "<<", "paths", "expire_in"),
)
YAML_SCALARS = (
    *("true", "null", "~", "1", "-1", "1e309", "0o7", "0x1", ".inf", ".nan", "2016-01-01", "'a'", '"\\0"', "!!python/object:os.system x"),
    *("|\n    a\n    b", "*a", "&a b", "on_failure", "always", "manual", "/(a+)+$/", "/[/", "branches", "master", "'" + "x" * 3_000 + "'"),
    *(
        "!!binary aGk=",
        "!!set {a}",
        "? a",
        "- - -",
        "{",
        "[",
        "@",
        "`",
        "%YAML 9.9",
        "\t",
        "é",
        "\U0001f4a5",
        "[*a, *a]",
        "10 years",
        "echo $A",
    ),
)


async def fuzz_ci(part: FuzzPart, instance: FuzzServer) -> None:
    """`.gitlab-ci.yml` files as `ciConfig` reads them: an answer in time, with or without errors of the file."""
    path = f"acme/{instance.edge_cases.projects[0].path}"
    found: Any = graphql_schema.query_type.fields["ciConfig"] if graphql_schema.query_type else None
    leaves = [
        name
        for name, each in get_named_type(found.type).fields.items()
        if not hasattr(get_named_type(each.type), "fields") and not each.args
    ]
    query = f"query Q($p: String!, $c: String!, $r: String) {{ ciConfig(projectPath: $p, content: $c, ref: $r) {{ {' '.join(leaves)} }} }}"
    async with instance.client() as client:
        for seed in part.seeds():
            chance = random.Random(seed)
            variables = {"p": path, "c": yaml_text(chance), "r": chance.choice((None, "master", "x"))}
            await send_operation(
                part, instance, client, seed, "a .gitlab-ci.yml", json.dumps({"query": query, "variables": variables}), "developer"
            )


def yaml_text(chance: random.Random) -> str:
    """Text that looks like a file of jobs, more or less."""
    if chance.random() < 0.05:
        return "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]" for n in range(8)
        )
    if chance.random() < 0.05:
        return chance.choice(("[" * 20_000, "{" * 20_000, "- " * 20_000, "a:\n" * 20_000, "? " * 5_000, "x" * 250_000, "&a [*a]"))
    lines = ["job:\n  script: echo" if chance.random() < 0.5 else ""]

    def block(depth: int) -> None:
        for _ in range(chance.choice((1, 2, 3))):
            key = chance.choice(YAML_KEYS) if chance.random() < 0.8 else chance.choice(YAML_SCALARS)
            pad = "  " * depth
            match chance.choice(("scalar", "scalar", "list", "map")):
                case "scalar":
                    lines.append(f"{pad}{key}: {chance.choice(YAML_SCALARS)}")
                case "list":
                    lines.append(f"{pad}{key}:")
                    lines.extend(f"{pad}  - {chance.choice(YAML_SCALARS)}" for _ in range(chance.choice((0, 1, 2))))
                case "map" if depth < 5:
                    lines.append(f"{pad}{key}:")
                    block(depth + 1)

    for _ in range(chance.choice((1, 2, 4))):
        block(0)
    return "\n".join(lines)


# What every answer is held to


async def send(
    part: FuzzPart, seed: int, what: str, client: httpx.AsyncClient, method: str, path: str, **settings: Any
) -> httpx.Response | None:
    """The answer; None, and a finding, where there is none or none in time."""
    started = time.monotonic()
    limit = settings.get("timeout", HANG_SECONDS)
    try:
        response = await client.request(method, path, **settings)
    except httpx.TimeoutException:
        part.report(f"{what} has no answer after {limit:.0f} s", f"{method} {path}", seed)
        return None
    except httpx.RemoteProtocolError as error:
        # A server that has read enough to refuse it may close the connection while the rest is sent.
        if "without sending" in str(error):
            part.report(f"{what} has no answer: {error}", f"{method} {path}", seed)
        return None
    except httpx.TransportError as error:
        part.report(f"{what} cannot be sent: {type(error).__name__}", f"{method} {path}: {error}", seed)
        return None
    if (seconds := time.monotonic() - started) > max(DEADLINE_SECONDS + 1, limit - 5):
        part.report(f"{what} took longer than the deadline", f"{seconds:.1f} s: {method} {path}", seed)
    return response


async def send_operation(
    part: FuzzPart, instance: FuzzServer, client: httpx.AsyncClient, seed: int, what: str, text: str, caller: str
) -> None:
    headers = {"Content-Type": "application/json", **instance.headers(caller)}
    response = await send(part, seed, what, client, "POST", "/graphql", content=text.encode("utf-8", "surrogatepass"), headers=headers)
    if response is not None:
        if response.status_code >= 500:
            part.report(f"{what} answers {response.status_code}", f"{text[:1_000]}\n{response.text[:1_000]}", seed)
        else:
            codes = {error.get("extensions", {}).get("code") for error in response.json().get("errors", ())}
            if wrong := codes - GRAPH_CODES:
                part.report(f"{what} answers {sorted(map(str, wrong))}", f"{text[:1_000]}\n{response.text[:1_000]}", seed)
    report_faults(part, instance, seed, what)


def check_v3_response(part: FuzzPart, seed: int, what: str, response: httpx.Response) -> None:
    if response.status_code >= 500:
        part.report(f"{what} answers {response.status_code}", response.text[:1_000], seed)
    elif response.status_code >= 400:
        try:
            check_error(response.json())
        except (AssertionError, ValueError) as error:
            part.report(f"{what}: not the error object", f"{response.text[:500]}\n{error}", seed)


def report_faults(part: FuzzPart, instance: FuzzServer, seed: int, what: str) -> None:
    for line in instance.read_faults():
        part.report(f"{what}: {title_of_log_line(line)}", line, seed)
    if not instance.is_alive:
        part.report(f"{what}: the server has ended", instance.server.log.read_text()[-2_000:], seed)


HOSTILE_PARTS: dict[str, Callable[[FuzzPart, FuzzServer], Any]] = {
    "packs": fuzz_packs,
    "cursors": fuzz_cursors,
    "uploads": fuzz_uploads,
    "ci": fuzz_ci,
}

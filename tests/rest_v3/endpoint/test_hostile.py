"""No route of v3 fails with 5xx or changes data, whatever is sent to it.

Every row of the route table is called with each of its parameters spoiled in turn, in every form in which a parameter may be sent, by an
administrator and by somebody who is none. The rows come from the table, so that new ones are covered by themselves.

Parameters of a kind are read by the same code: each kind gets every value in every form, and each parameter a part of them, its neighbour
the next. Each string parameter also gets one that is too long, since every rule limits its own.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from rest_v3.route import Route
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from storage import tables
from tests.make import token_of
from tests.rest_v3.support import response_shapes
from tests.support.api_clients import Api
from tests.support.database.database_selection import quarter_for_dialect, share_of_values, spread_values
from tests.support.queries.fuzz_values import FUZZ_NUMBERS, FUZZ_STRINGS, FUZZ_TIMESTAMPS, LONE_SURROGATE, CommitCounter
from tests.support.queries.permission_matrix import V3, parse_matrix
from tests.support.scenario import Scenario, valid_v3_request

ALL = (*ROUTES, *EXTRA_ROUTES)
V3_ROWS = parse_matrix(V3)
SECTIONS = sorted({route.section for route in ALL})
PARTS = 8
"""How many tests share the sections, each with a world of its own, which takes longer to make than most sections to call."""
ADMINISTRATOR, OWNER = "AD", "OW"
BOUNDARY = "limit"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"

LONG = "x" * 10_001
WORST_STRINGS = ("a\0b", "'; DROP TABLE users; --\\", "2147483648", "9223372036854775808", "9999-12-31T23:59:59-14:00")
"""A third of these is sent to each parameter as text, of the others one part of PARTS_OF_VALUES."""
FUZZ_PARAMETER_STRINGS = (*FUZZ_STRINGS, *FUZZ_NUMBERS, *FUZZ_TIMESTAMPS, "nonsense", "OPENED", "true")
WORST_LITERALS = (
    *(json.dumps(word) for word in ("a\0b", LONE_SURROGATE, "nonsense")),
    *("-1", "9223372036854775808", "null", "[]", "{}", "1.5"),
)
LITERALS = (
    *(
        json.dumps(text)
        for text in (*WORST_STRINGS, *FUZZ_STRINGS, f"a{LONE_SURROGATE}b", *FUZZ_TIMESTAMPS, "CLOSE", "NaN", "0x1", "1e309")
    ),
    *("0", "-2147483649", "NaN", "-0", "1e2", "false", '""', "[[1]]", '[["a"]]', "[null]", '["a",1,null,true]', '{"a":1}'),
    *(json.dumps("é\u0301" * 3_000), "2147483648", f"1{'0' * 30}", "1e309", "true", "[[]]", "[{}]", "[" * 70 + "]" * 70),
    json.dumps(FUZZ_STRINGS),
    json.dumps(list(range(2000))),
    json.dumps(["x" * 300] * 300),
    '{"a":' * 70 + "1" + "}" * 70,
)
PARTS_OF_VALUES, PARTS_OF_WORST = 24, 3
FORMS = 2
"""A parameter that may be sent as text and in JSON gets the worst values in one form, its neighbour in the other."""
WORST_PARTS = ("%00", "%ff", "%F0%9F%92%A5", "0", "-1", "2147483648", "9223372036854775808", "x" * 10_001)
PARTS_OF_PATHS = (
    *("%00", "a%00b", "%ff", "%ed%a0%80", "%zz", "%", "%2", "%25", "_", "%2e%2e", "..", ".", "%2F", "a%2Fb%2Fc", "%5C", "%0d%0aX:%20y"),
    *("0", "-1", "+1", "01", "1%20", "1.0", "1abc", "2147483647", "2147483648", "9223372036854775808", "9" * 40, "1e309", "NaN", "0x1"),
    *("%D9%A3", "%C2%B2", "%F0%9F%92%A5", "x" * 10_001, "9" * 5000, quote("'; DROP TABLE users; --", safe=""), "null", "[]", "a;b=c"),
)
REVISIONS = (
    *("HEAD", "@", "@{-1}", "master~1", "master%5E", "master%5E%7B%2Fx%7D", ":%2Fx", "master@%7B1%7D", "master:README.md", "--all", "-n1"),
    *("refs%2Fheads%2Fmaster", "%5Emaster", "master..topic", "master%5E%7B%7D", "a" * 39, "a" * 40, "A" * 40, "0" * 40, "g" * 40, "abcdef"),
)
QUERIES = (
    *(
        "page=0",
        "page=-1",
        "page=2147483647",
        f"page={'9' * 30}",
        "page=1e309",
        "page=NaN",
        "page=",
        "page[]=1",
        "page=1&page=x",
        "page=%00",
    ),
    *(
        "per_page=0",
        "per_page=-1",
        "per_page=100000",
        f"per_page={'9' * 5000}",
        "page=2147483647&per_page=100",
        "page=21474837&per_page=100",
    ),
    *("%ff=1", "a=%ff", "a=%ed%a0%80", "%zz=%", "=", "&&&", "a[b][c]=1", "%00=%00", "&".join(["a=1"] * 1100), "private_token=%00"),
    *("private_token=%F0%9F%92%A5", "private_token[]=1", "sudo=root", "_method=DELETE", "x" * 60_000),
)
BODIES = (
    *(
        (JSON, body)
        for body in (b"", b"{", b"}", b"[]", b"[{}]", b'"a"', b"1", b"null", b"true", b"NaN", b'{"a":NaN}', b"{'a':1}", b"\xff")
    ),
    *(
        (JSON, body)
        for body in (
            b'{"a":"\xff"}',
            b'{"\\ud800":1}',
            b'{"a":1',
            b"\xef\xbb\xbf{}",
            b"\x00",
            b"[" * 100_000,
            b'{"a":' * 70 + b"1" + b"}" * 70,
        )
    ),
    (JSON, json.dumps({f"a{number}": 1 for number in range(1100)}).encode()),
    (JSON, b'{"private_token":{},"page":[],"per_page":{}}'),
    (JSON, b'{"a":"' + b"x" * 2**20 + b'"}'),
    (FORM, b"%ff=%ff"),
    (FORM, b"&".join([b"a=1"] * 1100)),
    (FORM, b"\xff\x00"),
    (FORM, b'{"title":"a"}'),
    (MULTIPART, b""),
    (MULTIPART, b"--limit"),
    (MULTIPART, b"--limit\r\nContent-Disposition: form-data\r\n\r\nx\r\n--limit--\r\n"),
    (MULTIPART, b'--limit\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--limit--\r\n'),
    (MULTIPART, b'--limit\r\nContent-Disposition: form-data; name="\xff"\r\n\r\na\r\n--limit--\r\n'),
    (MULTIPART, b'--limit\r\nContent-Disposition: form-data; name="file"; filename="\xff\x00/../x"\r\n\r\na\r\n--limit--\r\n'),
    (MULTIPART, b'--limit\r\nContent-Disposition: form-data; name="file"; filename=""\r\n\r\na\r\n--limit--\r\n'),
    (MULTIPART, b'--limit\r\nContent-Disposition: form-data; name="a"\r\n\r\na\r\n--limit\r\n' * 1100),
    ("multipart/form-data", b"--limit--"),
    (f"multipart/form-data; boundary={'x' * 1000}", b"--limit--"),
    ("multipart/form-data; boundary=\xff", b"--limit--"),
    ("text/xml", b"<a/>"),
    ("application/json; charset=utf-16", '{"a":1}'.encode("utf-16")),
    ("text/plain", b"{}"),
    ("\xff", b"a"),
    ("", b"\x00\xff"),
)


FuzzRequest = Callable[[dict[str, Any]], dict[str, Any]]
"""From valid parameters to what is sent."""


class V3Fuzzer:
    """Calls of one row's, each answer held to the rule: below 500, an error as an object, and nothing changed where it is an error."""

    def __init__(self, api: Api, world: Scenario) -> None:
        self.api = api
        self.world = world
        self.faults: list[str] = []
        self.commits = CommitCounter(world.make.services.database)
        self._turns = count()

    async def valid_request(self, route: Route, role: str = ADMINISTRATOR) -> tuple[str, str, dict[str, Any]]:
        """The method, the path and the parameters of a valid call, about an object made for it."""
        return await valid_v3_request(self.world, route.call, role)

    async def send_all(self, route: Route, roles: Sequence[str], sendings: Iterable[FuzzRequest]) -> None:
        """Calls the row with each of these, and makes a new object where a call has consumed the last one."""
        lasting = route.method == "GET" or (route.method == "PUT" and route.path.rpartition("/")[2].startswith(":"))
        valid = None
        for sending in sendings:
            method, path, parameters = valid = valid or await self.valid_request(route)
            status = await self.send(method, path, roles[next(self._turns) % len(roles)], **sending(parameters))
            if status < 400 and not lasting:
                valid = None

    async def send(self, method: str, path: str, role: str, *, query: str = "", body: bytes = b"", kind: str = "") -> int:
        """The status, of the raw bytes as a server hands them over."""
        viewer = self.world.users[role]
        before = self.commits.count
        response = await raw(self.api, viewer, method, path, query, body, kind)
        try:
            check_response(self.api, viewer, method, path, response)
            is_signed_in = path == "/session" or "private_token" in f"{query}{body[:200]!r}"
            assert response.status_code != 401 or is_signed_in, "the caller is one no more"
            assert response.status_code < 400 or self.commits.count == before, "a refused call changed something"
        except AssertionError as error:
            sent = f"{method} {path[:200]}?{query[:200]} {kind} {body[:200]!r} as {role}"
            self.faults.append(f"{sent}\n    {response.status_code} {response.text[:300]}: {str(error)[:300]}")
        return response.status_code

    def check_nothing_committed(self) -> None:
        """Fails with all that was wrong."""
        assert not self.faults, "\n".join(self.faults)


def check_response(api: Api, viewer: tables.User | None, method: str, path: str, response: httpx.Response) -> None:
    assert response.status_code < 500
    for word in ("Traceback", 'File "', "sqlalchemy", "asyncpg", "sqlite3"):
        assert word not in response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == JSON
        response_shapes.check_error(response.json())
    else:
        api.check(method, path, viewer, response)


async def raw(api: Api, viewer: tables.User | None, method: str, path: str, query: str, body: bytes, kind: str) -> httpx.Response:
    """What the application answers to these bytes; no client puts them in order on the way."""
    headers = [(b"private-token", token_of(viewer).encode())] if viewer else []
    if kind or body:
        headers += [(b"content-type", kind.encode("latin-1")), (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": f"/api/v3{path}".encode(),
        "root_path": "/api/v3",
        "query_string": query.encode("utf-8", "surrogatepass"),
        "headers": headers,
    }
    messages: list[Any] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        # Who has sent all waits for the answer.
        return unread.pop() if unread else await asyncio.Future()

    async def send(message: Any) -> None:
        messages.append(message)

    await api.app(scope, receive, send)
    start, *pieces = messages
    return httpx.Response(start["status"], headers=start["headers"], content=b"".join(piece["body"] for piece in pieces))


def as_json(parameters: dict[str, Any], name: str, literal: str) -> bytes:
    """A JSON body in which one value is inserted literally."""
    members = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in parameters.items() if key != name]
    return f"{{{','.join([*members, f'{json.dumps(name)}:{literal}'])}}}".encode()


def as_multipart(parameters: dict[str, Any]) -> bytes:
    parts = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parameters.items())
    return ("".join(parts) + f"--{BOUNDARY}--\r\n").encode()


def requests_for(route: Route, name: str, turn: int, places: int) -> Iterator[FuzzRequest]:
    """Hostile values in the place of one parameter, as text by turns in each form, and in JSON.

    It is number `turn` of the `places` parameters of its kind.
    """
    method = route.method
    as_words = method == "GET" or turn % FORMS == 0 or share_of_values(FORMS) == 1
    as_literals = method != "GET" and (turn % FORMS == FORMS - 1 or share_of_values(FORMS) == 1)
    worst = (turn, places, PARTS_OF_WORST) if method == "GET" else (turn // FORMS, places // FORMS, PARTS_OF_WORST)
    others = (turn, places, PARTS_OF_VALUES)
    words = [*([LONG, *spread_values(WORST_STRINGS, *worst)] if as_words else ()), *spread_values(FUZZ_PARAMETER_STRINGS, *others)]
    for number, word in enumerate(words):
        yield partial(as_text, method, name, word, (number + turn) % 4)
    for query in spread_values(("=%ff", "=%ed%a0%80", "=%zz", "[][]=a", "[a]=b", "=1&{name}=2", "[0]=%00"), *others):
        yield partial(beside_query, method, name + query.replace("{name}", name))
    if method != "GET":
        repeated = f'"a","{name}":[],"{name}":{{}}'
        worst_literals = [json.dumps(LONG), *spread_values((*WORST_LITERALS, repeated), *worst)] if as_literals else ()
        for literal in (*worst_literals, *spread_values(LITERALS, *others)):
            yield partial(as_literal, name, literal)


def as_text(method: str, name: str, word: str, turn: int, parameters: dict[str, Any]) -> dict[str, Any]:
    sent = {**parameters, name: word}
    if method == "GET" or turn == 0:
        return {"query": urlencode(sent)}
    if turn == 1:
        return {"query": urlencode({f"{name}[]": word}), "kind": FORM, "body": urlencode(parameters).encode()}
    if turn == 2:
        return {"kind": FORM, "body": urlencode(sent).encode()}
    return {"kind": MULTIPART, "body": as_multipart(sent)}


def beside_query(method: str, query: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"query": query} if method == "GET" else {"query": query, "kind": JSON, "body": json.dumps(parameters).encode()}


def as_literal(name: str, literal: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"kind": JSON, "body": as_json(parameters, name, literal)}


def valid_parameters(route: Route, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a valid call, in the form that the row's method takes."""
    if route.method == "GET":
        return {"query": urlencode(parameters)}
    if any(parameter.kind == "file" for parameter in route.params):
        file = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na\r\n--limit--\r\n'
        return {"kind": MULTIPART, "body": file}
    return {"kind": JSON, "body": json.dumps(parameters).encode()}


@pytest.fixture
async def attack(api: Api, scenario: Scenario) -> V3Fuzzer:
    attack = V3Fuzzer(api, scenario)
    await scenario.make.user()
    assert attack.commits.count, "the watch sees nothing"
    return attack


@pytest.mark.parametrize("part", range(PARTS))
class TestHostileInput:
    async def test_in_parameters(self, attack: V3Fuzzer, part: int, dialect: str) -> None:
        for route in rows_in(part):
            roles = roles_of(route)
            for parameter in route.params:
                if parameter.name not in route.path_names:
                    turn, places = PARAMETERS.turn(route, parameter.name)
                    hostile = requests_for(route, parameter.name, turn, places)
                    await attack.send_all(route, roles, quarter_for_dialect(hostile, dialect, turn))
        attack.check_nothing_committed()

    async def test_in_paths(self, attack: V3Fuzzer, part: int) -> None:
        for route in rows_in(part):
            roles = roles_of(route)
            _, path, parameters = await attack.valid_request(route)
            names = route.path.split("/")
            for index, name in enumerate(names):
                if not name.startswith(":"):
                    continue
                turn, places = PATH_PARTS.turn(route, name)
                hostile = [*spread_values(WORST_PARTS, turn, places, 4), *spread_values(PARTS_OF_PATHS, turn, places, PARTS_OF_VALUES)]
                hostile += spread_values(REVISIONS, turn, places, 3) if name == ":sha" else ()
                for number, each in enumerate(hostile):
                    segments = path.split("/")
                    segments[index] = each
                    role = roles[(number + turn) % len(roles)]
                    await attack.send(route.method, "/".join(segments), role, **valid_parameters(route, parameters))
        attack.check_nothing_committed()

    async def test_in_queries_and_bodies(self, attack: V3Fuzzer, part: int) -> None:
        for route in rows_in(part):
            roles, (turn, places) = roles_of(route), METHODS.turn(route, route.method)
            queries = spread_values(QUERIES, turn, places, PARTS_OF_VALUES)
            await attack.send_all(route, roles, (partial(beside_query, route.method, query) for query in queries))
            if route.method != "GET":
                bodies = spread_values(BODIES, turn, places, PARTS_OF_VALUES)
                await attack.send_all(route, roles, (lambda _, kind=kind, body=body: {"kind": kind, "body": body} for kind, body in bodies))
        attack.check_nothing_committed()


class Places:
    """Counts the places of each kind in all rows, so that each gets other values than its neighbour."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], Any] = {}
        self._turns: dict[tuple[str, str], int] = {}
        self._counts: Counter[Any] = Counter()

    def add(self, route: Route, name: str, kind: Any) -> None:
        self._kinds[route.call, name] = kind
        self._turns[route.call, name] = self._counts[kind]
        self._counts[kind] += 1

    def turn(self, route: Route, name: str) -> tuple[int, int]:
        """The number of the place among those of its kind, and how many there are."""
        return self._turns[route.call, name], self._counts[self._kinds[route.call, name]]


PARAMETERS, PATH_PARTS, METHODS = Places(), Places(), Places()
for each_route in ALL:
    METHODS.add(each_route, each_route.method, each_route.method == "GET")
    for each in each_route.params:
        if each.name not in each_route.path_names:
            PARAMETERS.add(each_route, each.name, (each.kind, each_route.method == "GET"))
        else:
            PATH_PARTS.add(each_route, f":{each.name}", each.kind if each.kind == "integer" else each.name)


def roles_of(route: Route) -> tuple[str, ...]:
    """By whom the row is to be called in turn: seldom by the owner where it refuses everybody but administrators."""
    refused = V3_ROWS.get(route.call, {}).get(OWNER) in ("403", "404")
    return (*[ADMINISTRATOR] * 7, OWNER) if refused else (ADMINISTRATOR, OWNER)


def rows_in(part: int) -> Iterator[Route]:
    sections = SECTIONS[part::PARTS]
    return (route for route in ALL if route.section in sections)

"""No mutation or query fails with an internal error or changes data, whatever its arguments.

Everything is generated from the schema: each field of each input, and each argument of each field, gets values of the right type that
nobody means well with, and some of wrong types. Those that the rule of a field must reject alone come to every field. Those that are
rejected by the code of a scalar, of all variables or of all pages come to every kind of place, of which each gets a part.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest
from graphql import (
    GraphQLArgument,
    GraphQLField,
    GraphQLInputType,
    GraphQLObjectType,
    GraphQLOutputType,
    get_named_type,
    get_nullable_type,
    is_composite_type,
    is_enum_type,
    is_input_object_type,
    is_interface_type,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
)
from sqlalchemy import update
from sqlmodel import col

from graph.errors import Code
from graph.fields.entities import global_id
from graph.schema import graphql_schema
from storage import tables
from storage.secrets import digest_token
from storage.tables.accounts.users import PRIVATE_TOKEN
from tests.make import token_of
from tests.support.api_clients import Ask
from tests.support.database.database_selection import half_for_dialect, quarter_for_dialect, spread_values
from tests.support.queries.fuzz_values import FUZZ_NUMBERS, FUZZ_STRINGS, FUZZ_TIMESTAMPS, LONE_SURROGATE, CommitCounter
from tests.support.scenario import Scenario, valid_mutation_input
from tests.support.zips import pack_files

assert graphql_schema.mutation_type is not None
assert graphql_schema.query_type is not None
MUTATIONS = graphql_schema.mutation_type.fields
PARTS = 4
"""How many tests share the mutations, so that several processes may."""
SHARES = {"String": 24, "ID": 16, "Int": 10, "Boolean": 4, "Date": 4, "DateTime": 4}
"""In how many parts the further values of a scalar are divided, of which one field gets one; its neighbour of that type the next."""
PAGE_SHARE = 6
"""In how many parts the values of an argument of pages are divided: all lists read their pages by the same code."""
WINDOWS = 6
"""In how many parts the invalid pages are divided."""
FILTER_SHARE = 4
"""In how many parts the values of a filter or another input are divided among the lists that take it."""
ALLOWED = set(Code) - {Code.INTERNAL, Code.UNAVAILABLE}

WORST: dict[str, tuple[Any, ...]] = {
    "String": ("", "x" * 10_001, None),
    "ID": ("", "VXNlcjo5OTk5OTk5OTk5OTk5OTk5OTk5", None),
    "Int": (0, -1, 2**31 - 1, None),
    "Boolean": (None,),
    "Date": ("0001-01-01", "9999-12-31", None),
    "DateTime": ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", None),
}
"""Values of every field."""
EXTRA_VALUES: dict[str, tuple[Any, ...]] = {
    "String": ("a\0b", f"a{LONE_SURROGATE}", *FUZZ_STRINGS, *FUZZ_NUMBERS, *FUZZ_TIMESTAMPS),
    "ID": ("a\0b", *FUZZ_STRINGS, *FUZZ_NUMBERS, "VXNlcjo", "OjE", "VXNlcjowMQ", "VXNlcjrCsg", "Tm9uc2Vuc2U6MQ", 1),
    "Int": (-(2**31), 2**31, 10**30, 1.5, float("inf"), float("nan"), "1", True),
    "Boolean": ("true", 0, 1, "on"),
    "Date": ("2016-02-30", *FUZZ_TIMESTAMPS),
    "DateTime": ("2016-01-01T00:00:00", *FUZZ_TIMESTAMPS),
}
INSIDE = {
    "Comparison": ("Project", 'compare(from: "master", to: "topic")'),
    "Rollup": ("Commit", "rollup"),
    "Branch": ("Project", "branch"),
    "BranchHealth": ("Branch", "health"),
}
"""Types that are no nodes and have fields with arguments: the node, or another of these, and its field, that they are reached through."""
INVALID_LITERALS: tuple[Any, ...] = ([], {}, [[]], {"a": 1}, "NONSENSE", 10**30)
VALID_ARGUMENTS: dict[str, Any] = {
    "rev": "master",
    "ref": "master",
    "from": "master",
    "to": "topic",
    "first": 1,
    "last": None,
    "after": None,
    "before": None,
    "offset": None,
    "range": {"since": "2016-01-01T00:00:00Z"},
}


T = TypeVar("T")


class HostileValues:
    """Values for one place after another, of which each gets another part than the one before it of its kind."""

    def __init__(self, ids: Sequence[str], cursors: Sequence[str], first_turn: int = 0) -> None:
        self.ids = ids
        self.cursors = cursors
        self._turns: Counter[str] = Counter()
        self._first_turn = first_turn

    def part(self, kind: str, values: Sequence[T], parts: int) -> Sequence[T]:
        """The next part of the values of this kind."""
        self._turns[kind] += 1
        return spread_values(values, self._first_turn + self._turns[kind], parts, parts)

    def of_type(self, kind: GraphQLInputType, valid: Any = None) -> Iterator[Any]:
        """Hostile values of an input type. `valid` is a valid one where there is one."""
        inner = get_nullable_type(kind)
        if is_list_type(inner):
            few = list(self.of_type(inner.of_type))
            yield from ([], None, [None], few[:1] * 5_000, *([value] for value in few))
            yield few[0]
            return
        if is_enum_type(inner):
            word = next(iter(inner.values))
            yield from ("NONSENSE", word.lower(), "", None, 0, *inner.values)
            return
        if is_input_object_type(inner):
            yield from (None, {}, [], {"nonsense": 1})
            for name, field in inner.fields.items():
                yield from ({**(valid or {}), name: value} for value in self.of_type(field.type))
            return
        yield from WORST.get(inner.name, ())
        more = [*EXTRA_VALUES.get(inner.name, ()), *INVALID_LITERALS]
        if inner.name == "ID":
            more += self.ids
        if inner.name in ("ID", "String"):
            more += self.cursors
        yield from self.part(inner.name, more, SHARES.get(inner.name, 1))

    def of_argument(self, name: str, argument: GraphQLArgument) -> Sequence[Any]:
        """Hostile values of an argument of a field."""
        named = get_named_type(argument.type)
        values = list(self.of_type(argument.type))
        if name in PAGE_ARGUMENTS:
            return self.part(name, values, PAGE_SHARE)
        if is_input_object_type(named):
            return self.part(named.name, values, min(FILTER_SHARE, ARGUMENT_TYPES[named.name]))
        return values


def selection(kind: GraphQLOutputType, depth: int = 2) -> str:
    """All that can be read of a type without arguments, and of what lies right below it."""
    named = get_named_type(kind)
    if not is_composite_type(named):
        return ""
    chosen = ["__typename"]
    fields = named.fields if is_object_type(named) or is_interface_type(named) else {}
    for name, field in fields.items():
        if any(is_non_null_type(argument.type) and not argument.default_value for argument in field.args.values()):
            continue
        below = get_named_type(field.type)
        if is_leaf_type(below):
            chosen.append(name)
        elif (depth > 1 and name in ("nodes", "pageInfo", "userErrors")) or (depth > 1 and not field.args and not is_list_type(field.type)):
            chosen.append(name + selection(field.type, depth - 1))
    return f" {{ {' '.join(chosen)} }}"


class GraphqlFuzzer:
    """Operations of one world, each held to the rule: errors of the closed list that are not our fault, and nothing changed beside them."""

    def __init__(self, ask: Ask, world: Scenario) -> None:
        self.ask = ask
        self.world = world
        self.faults: list[str] = []
        self.commits = CommitCounter(world.make.services.database)

    async def send(self, query: str, role: str, variables: dict[str, Any]) -> bool:
        """Whether the operation was done."""
        viewer = self.world.users[role]
        assert viewer is not None
        changes = query.startswith("mutation")
        before = self.commits.count
        outcome = await self.ask(query, viewer, **variables)
        reported: list[Any] = [(problem.code, problem.message) for problem in outcome.errors]
        if changes and outcome.data:
            reported += [
                (error["code"], error["message"]) for payload in outcome.data.values() if payload for error in payload["userErrors"]
            ]
        wrong = [str(each) for each in reported if each[0] not in ALLOWED]
        if (reported or not changes) and self.commits.count != before:
            wrong.append(f"something was changed, though the answer is {reported}")
        if wrong:
            self.faults.append(f"{query[:120]} as {role} with {str(variables)[:300]}\n    {'; '.join(wrong)[:600]}")
        if any(code is Code.UNAUTHENTICATED for code, _ in reported) and (await self.ask("{ viewer { id } }", viewer)).errors:
            await self.restore_user(viewer)
            return await self.send(query, role, variables)
        return not reported

    async def restore_user(self, viewer: tables.User) -> None:
        """Gives a caller the token back that a call of their own, which was valid after all, has replaced."""
        services = self.world.make.services
        token = token_of(viewer)
        async with services.database.write_session() as session:
            values = {"digest": digest_token(token), "sealed": services.cipher.encrypt(token)}
            own = col(tables.Token.user_id) == viewer.id, col(tables.Token.name) == PRIVATE_TOKEN
            await session.execute(update(tables.Token).where(*own).values(values))
            await session.commit()
        assert not (await self.ask("{ viewer { id } }", viewer)).errors, "a call has ended its caller"

    def check_nothing_committed(self) -> None:
        """Fails with all that was wrong."""
        assert not self.faults, "\n".join(self.faults)


@pytest.fixture
async def attack(ask: Ask, scenario: Scenario) -> GraphqlFuzzer:
    attack = GraphqlFuzzer(ask, scenario)
    await scenario.make.user()
    assert attack.commits.count, "the watch sees nothing"
    return attack


async def examples(attack: GraphqlFuzzer) -> tuple[dict[str, str], list[str]]:
    """The id of one thing of each type of nodes that has lists or things of its own, and cursors of several lists."""
    world, make = attack.world, attack.world.make
    admin = world.users["AD"]
    issue = await make.issue(world.private, author=world.somebody)
    await make.issue(world.private, author=world.somebody)
    hook = tables.Hook(url="http://127.0.0.1:9/")
    pipeline = tables.Pipeline(project_id=world.private.id, sha=world.sha, ref="master", jobs=[])
    environment = tables.Environment(project_id=world.private.id, name="production")
    await make.save(hook, pipeline, environment)
    rows: dict[str, Any] = {
        "User": world.somebody,
        "Group": world.group,
        "Project": world.private,
        "Issue": issue,
        "MergeRequest": await make.merge_request(world.private, author=world.somebody, source_branch="topic", head_oid=world.sha),
        "Snippet": await make.snippet(world.private, author=world.somebody),
        "Milestone": await make.milestone(world.private),
        "Label": await make.label(world.private),
        "Hook": hook,
        "Pipeline": pipeline,
        "Environment": environment,
        "Build": await make.build(world.private, world.sha),
    }
    rows["ReviewThread"] = await make.thread(rows["MergeRequest"])
    rows["Artifact"] = await make.artifact(rows["Build"], pack_files({"a/b.txt": "text"}))
    found = await attack.ask.data(
        """query ($path: String!) {
          users(first: 1) { pageInfo { endCursor } }
          groups(first: 1) { pageInfo { endCursor } }
          project(path: $path) {
            commit(rev: "master") { id } commits(first: 1) { pageInfo { endCursor } } issues(first: 1) { pageInfo { endCursor } }
            branches(first: 1) { pageInfo { endCursor } } members(first: 1) { pageInfo { endCursor } }
            mergeRequests(first: 1) { pageInfo { endCursor } }
          }
        }""",
        admin,
        path=str(world.private.id),
    )
    project = found["project"]
    ids = {name: str(global_id(name, row.id)) for name, row in rows.items()} | {"Commit": project["commit"]["id"]}
    lists = [found["users"], found["groups"], *(project[key] for key in ("commits", "issues", "branches", "members", "mergeRequests"))]
    return ids, [each["pageInfo"]["endCursor"] for each in lists]


def is_fuzzed(kind: Any) -> bool:
    # What is followed is no query; its arguments are tried where streams are tested.
    roots = (graphql_schema.mutation_type, graphql_schema.subscription_type)
    return is_object_type(kind) and not kind.name.startswith("__") and kind not in roots


FIELD_QUERIES = [
    (kind, name, field) for kind in graphql_schema.type_map.values() if is_fuzzed(kind) for name, field in kind.fields.items() if field.args
]


ARGUMENT_TYPES = Counter(get_named_type(argument.type).name for _, _, field in FIELD_QUERIES for argument in field.args.values())
PAGE_ARGUMENTS = ("first", "last", "after", "before", "offset")


def query_for(world: Scenario, kind: GraphQLObjectType, name: str, field: GraphQLField, ids: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """A query for one field, with its arguments as variables, and valid values of those."""
    named = field.args
    arguments = ", ".join(f"{argument}: ${argument}" for argument in named)
    variables = ", ".join(f"${argument}: {definition.type}" for argument, definition in named.items())
    call = f"{name}({arguments}){selection(field.type)}"
    valid: dict[str, Any] = {}
    for argument, definition in named.items():
        if is_non_null_type(definition.type) or argument in VALID_ARGUMENTS:
            inner = get_nullable_type(definition.type)
            plain = {"Int": 1, "ID": ids["User"], "String": str(world.private.id)}.get(get_named_type(inner).name)
            valid[argument] = VALID_ARGUMENTS.get(argument, [plain] if is_list_type(inner) else plain)
    if kind is graphql_schema.query_type:
        return f"query ({variables}) {{ {call} }}", valid
    owner = kind.name
    while owner in INSIDE:
        owner, through = INSIDE[owner]
        call = f"{through} {{ {call} }}"
    assert owner in ids, f"give {owner} an example in `examples`"
    return f"query ($node: ID!, {variables}) {{ node(id: $node) {{ ... on {owner} {{ {call} }} }} }}", {**valid, "node": ids[owner]}


def page_windows(cursors: list[str]) -> Iterator[dict[str, Any]]:
    """Pages that are invalid, or far beyond the end."""
    for first in (0, -1, 101, 2**31 - 1):
        yield {"first": first}
        yield {"first": None, "last": first}
    for offset in (-1, 2**31 - 1):
        yield {"offset": offset}
        yield {"first": 100, "offset": offset}
        yield {"first": None, "last": 1, "offset": offset}
    yield {"first": 1, "last": 1}
    for cursor in (*cursors, "", "!", "x" * 10_000, "e30", "W10", "WzEsMl0"):
        yield {"after": cursor}
        yield {"first": None, "last": 1, "before": cursor}
        yield {"after": cursor, "before": cursor, "offset": 1}


class TestHostileInput:
    @pytest.mark.parametrize("part", range(PARTS))
    async def test_in_mutations(self, attack: GraphqlFuzzer, part: int, dialect: str) -> None:
        ids, cursors = await examples(attack)
        hostile = HostileValues(list(ids.values()), cursors, part * 7)
        for name in sorted(MUTATIONS)[part::PARTS]:
            kind = get_nullable_type(MUTATIONS[name].args["input"].type)
            query = f"mutation ($input: {kind}!) {{ {name}(input: $input){selection(MUTATIONS[name].type)} }}"
            valid: dict[str, Any] | None = None
            for turn, (field, inner) in enumerate(kind.fields.items()):
                valid = valid or await valid_mutation_input(attack.world, name, "OW")
                values = list(hostile.of_type(inner.type, valid.get(field)))
                for number, value in enumerate(quarter_for_dialect(values, dialect, turn)):
                    valid = valid or await valid_mutation_input(attack.world, name, "OW")
                    role = "OW" if (number + turn) % 3 == 0 else "AD"
                    if await attack.send(query, role, {"input": {**valid, field: value}}):
                        valid = None
        attack.check_nothing_committed()

    async def test_in_queries(self, attack: GraphqlFuzzer, dialect: str) -> None:
        ids, cursors = await examples(attack)
        hostile = HostileValues(list(ids.values()), cursors)
        for turn, (kind, name, field) in enumerate(FIELD_QUERIES):
            query, valid = query_for(attack.world, kind, name, field, ids)
            for argument, definition in field.args.items():
                values = hostile.of_argument(argument, definition)
                for number, value in enumerate(quarter_for_dialect(values, dialect, turn)):
                    await attack.send(query, "OW" if (number + turn) % 3 == 0 else "AD", {**valid, argument: value})
            if "first" in field.args:
                windows = hostile.part("windows", list(page_windows(cursors)), WINDOWS)
                for window in half_for_dialect(windows, dialect, turn):
                    await attack.send(query, "AD", {**valid, **window})
        attack.check_nothing_committed()

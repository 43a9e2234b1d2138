"""Plans against graphql-core's own execution of the same schema: the same bytes, errors and paths, for one question after the other."""

import gc
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import orjson
from graphql import (
    ArgumentNode,
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    InlineFragmentNode,
    Node,
    ObjectFieldNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    VariableNode,
    Visitor,
    print_ast,
    specified_rules,
    validate,
    visit,
)

from graph.answers import result_of
from graph.context import Services
from graph.execute import Graph
from graph.operations import Prepared, prepared_of
from graph.outcomes import Outcome
from graph.planning.compiling import Plan
from graph.schema import graphql_schema
from storage import tables
from tests.make import token_of

PRUNINGS = 4
"""How often what failed is taken out of a question, and the rest asked again."""


SECONDS = 60.0
SHRINKING_SECONDS = 30.0


class Watched(Graph):
    """Counts the operations that graphql-core answered, and keeps what the last plan raised."""

    left = 0
    raised: BaseException | None = None

    def _plan(self, *given: Any) -> Any:
        # A second time, where the first time it is run is not enough.
        found = super()._plan(*given) or super()._plan(*given)
        return found and (_Raising(found[0], self), found[1])

    async def _execute(self, *given: Any, **named: Any) -> Any:
        self.left += 1
        return await super()._execute(*given, **named)


@dataclass(frozen=True)
class _Raising:
    plan: Plan
    graph: Watched

    async def run(self, *given: Any) -> Any:
        try:
            return await self.plan.run(*given)
        except BaseException as error:
            self.graph.raised = error
            raise


class Differs(AssertionError):
    """The two answered differently."""


@dataclass
class Oracle:
    """`compared` counts the questions that were answered both ways: with rows, without any, and with errors."""

    services: Services
    compared: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.plain = Graph(self.services, planner=False)
        self.planned = Watched(self.services, planner=True)

    async def compare(self, prepared: Prepared, variables: dict[str, Any], viewer: tables.User) -> Outcome:
        """graphql-core's answer. Raises Differs where a plan gives another one, or leaves one without errors to graphql-core."""
        token = token_of(viewer)
        wanted = await self.plain.run(prepared, variables, token, request_id="oracle", seconds=SECONDS)
        left, self.planned.raised = self.planned.left, None
        found = await self.planned.run(prepared, variables, token, request_id="oracle", seconds=SECONDS)
        first, second = result_of(wanted, "oracle"), result_of(found, "oracle")
        if not same(first, second):
            raise Differs(f"graphql-core: {orjson.dumps(first).decode()}\nthe plan:     {orjson.dumps(second).decode()}")
        if named_files(wanted) != named_files(found):
            raise Differs(f"graphql-core names {named_files(wanted)} files, the plan {named_files(found)}")
        if not wanted.errors and self.planned.left > left:
            why = "".join(traceback.format_exception(self.planned.raised)[-4:]) if self.planned.raised is not None else ""
            raise Differs(f"graphql-core had to answer, without an error: {orjson.dumps(first).decode()}\n{why}")
        self.compared["errors" if wanted.errors else "rows" if has_rows(wanted.data) else "empty"] += 1
        return wanted


def named_files(outcome: Outcome) -> int:
    """How many files the answer names. What an error took away may have named others, or not, as it came up sooner or later."""
    answer = orjson.dumps(outcome.data).decode()
    return sum(f'"{handle}"' in answer for handle in outcome.files)


def same(first: Any, second: Any) -> bool:
    """Whether the answers are the same to the byte, but for the order of errors, which come up as their statements are answered.

    Of several errors that take the same thing away, graphql-core tells those that came up before it was gone, which hangs on what was
    loaded by then: there must be one in both.
    """
    if "errors" not in first or "errors" not in second:
        return orjson.dumps(first) == orjson.dumps(second)
    if orjson.dumps(first.get("data")) != orjson.dumps(second.get("data")):
        return False
    one, other = _by_place(first), _by_place(second)
    return one.keys() == other.keys() and all(
        errors == other[place] or any(len(path) > len(place) for path, _ in errors | other[place]) for place, errors in one.items()
    )


def _by_place(result: Any) -> dict[tuple[Any, ...], set[tuple[tuple[Any, ...], str]]]:
    """The errors, with their paths, by the place of the null that stands for them."""
    found: dict[tuple[Any, ...], set[tuple[tuple[Any, ...], str]]] = {}
    for error in result["errors"]:
        path, place, data = tuple(error.get("path", ())), [], result.get("data")
        for part in path:
            if data is None:
                break
            place.append(part)
            data = data[part]
        told = orjson.dumps({key: value for key, value in error.items() if key != "path"}).decode()
        found.setdefault(tuple(place), set()).add((path, told))
    return found


def has_rows(data: Any) -> bool:
    """Whether anything but nulls, empty lists and counts of nothing came."""
    if isinstance(data, dict):
        return any(has_rows(each) for key, each in data.items() if key != "__typename")
    if isinstance(data, list):
        return bool(data) and any(has_rows(each) for each in data)
    return data is not None and data is not False and data != 0


def valid(document: DocumentNode) -> DocumentNode:
    """Raises GraphQLError for what the schema refuses."""
    if errors := validate(graphql_schema, document, specified_rules, max_errors=1):
        raise errors[0]
    return document


def prepared(document: DocumentNode) -> Prepared:
    """The one operation of a document that is known to be valid, which to find out takes longer than to run it."""
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return prepared_of(document, operation)


def without(document: DocumentNode, keys: Collection[str]) -> DocumentNode | None:
    """The document without the fields of these names in the answer, and without what is then empty or not used; None: nothing is left."""
    return _kept(document, lambda node: not (isinstance(node, FieldNode) and (node.alias or node.name).value in keys))


def _kept(document: DocumentNode, keep: Callable[[Any], bool]) -> DocumentNode | None:
    """The document with those of its parts that are to be kept, without selections that then hold nothing, fragments that nobody spreads
    and variables that nobody takes; None: nothing is left."""
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    given = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    fragments: dict[str, FragmentDefinitionNode | None] = {}

    def fragment(name: str) -> FragmentDefinitionNode | None:
        if name not in fragments:
            selections = selected(given[name].selection_set)
            fragments[name] = _with(given[name], selection_set=selections) if selections is not None else None
        return fragments[name]

    def selected(selections: SelectionSetNode) -> SelectionSetNode | None:
        found: list[Any] = []
        for node in selections.selections:
            if not keep(node) or (isinstance(node, FragmentSpreadNode) and fragment(node.name.value) is None):
                continue
            changed: dict[str, Any] = {}
            if node.directives and (directives := tuple(each for each in node.directives if keep(each))) != node.directives:
                changed["directives"] = directives
            if isinstance(node, FieldNode) and node.arguments:
                changed["arguments"] = tuple(argument(each) for each in node.arguments if keep(each))
            inner = getattr(node, "selection_set", None)
            if inner is not None:
                if (kept := selected(inner)) is None:
                    continue
                changed["selection_set"] = kept
            found.append(_with(node, **changed) if changed else node)
        return SelectionSetNode(selections=tuple(found)) if found else None

    def argument(node: Any) -> Any:
        if isinstance(node.value, ObjectValueNode):
            fields = tuple(argument(each) for each in node.value.fields if keep(each))
            return _with(node, value=ObjectValueNode(fields=fields))
        return node

    whole = selected(operation.selection_set)
    if whole is None:
        return None
    used: set[str] = set()
    _uses(whole, fragments, used)
    declared = tuple(each for each in operation.variable_definitions or () if f"${each.variable.name.value}" in used)
    left = [each for name, each in fragments.items() if each is not None and f"...{name}" in used]
    return DocumentNode(definitions=(_with(operation, selection_set=whole, variable_definitions=declared), *left))


def _with(node: Any, **changed: Any) -> Any:
    return type(node)(**{**{key: getattr(node, key) for key in node.keys if key != "loc"}, **changed})


def _uses(node: Any, fragments: Mapping[str, Any], found: set[str]) -> None:
    """The fragments, as `...F`, and the variables, as `$v`, that are used from here on."""
    if isinstance(node, VariableNode):
        found.add(f"${node.name.value}")
    elif isinstance(node, FragmentSpreadNode) and f"...{node.name.value}" not in found:
        found.add(f"...{node.name.value}")
        _uses(fragments[node.name.value].selection_set, fragments, found)
    for key in ("selections", "selection_set", "arguments", "directives", "value", "values", "fields"):
        part = getattr(node, key, None)
        for each in part if isinstance(part, tuple | list) else (part,):
            if isinstance(each, Node):
                _uses(each, fragments, found)


async def compare_pruned(oracle: Oracle, document: DocumentNode, variables: dict[str, Any], viewer: tables.User) -> None:
    """Compares a question, and what is left of it without the fields that failed. Raises Differs, with the smallest that does."""
    for _ in range(PRUNINGS):
        operation = prepared(document)
        try:
            outcome = await oracle.compare(operation, variables, viewer)
        except Differs as error:
            raise await smallest(oracle, document, variables, viewer, error) from None
        failed = {str([part for part in problem.path if isinstance(part, str)][-1]) for problem in outcome.errors if problem.path}
        if not failed:
            return
        rest = without(document, failed)
        if rest is None:
            return
        document = rest


async def smallest(oracle: Oracle, document: DocumentNode, variables: dict[str, Any], viewer: tables.User, error: Differs) -> Differs:
    """The same difference, of a question from which nothing can be taken, or from which nothing more was taken in time."""
    until = monotonic() + SHRINKING_SECONDS
    shorter = True
    while shorter and monotonic() < until:
        shorter = False
        gc.collect()
        for candidate in _shorter(document):
            try:
                await oracle.compare(prepared(valid(candidate)), _only(variables, candidate), viewer)
            except Differs as still:
                document, error, shorter = candidate, still, True
                break
            except GraphQLError:
                continue
            if monotonic() > until:
                break
    given = _only(variables, document)
    return Differs(f"{viewer.username}: {print_ast(document)}\n{given}\n{error}")


def _only(variables: dict[str, Any], document: DocumentNode) -> dict[str, Any]:
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    declared = {each.variable.name.value for each in operation.variable_definitions or ()}
    return {name: value for name, value in variables.items() if name in declared}


def _shorter(document: DocumentNode) -> Iterator[DocumentNode]:
    """The document with one thing less, the largest things first; or with what a fragment holds in its place."""
    parts: list[Any] = []

    class Parts(Visitor):
        def enter(self, node: Any, *_: Any) -> None:
            if isinstance(node, FieldNode | InlineFragmentNode | FragmentSpreadNode | ArgumentNode | DirectiveNode | ObjectFieldNode):
                parts.append(node)

    visit(document, Parts())
    for part in sorted(parts, key=lambda node: -len(print_ast(node))):
        if (found := _kept(document, lambda node, part=part: node is not part)) is not None:
            yield found
    for part in parts:
        if isinstance(part, InlineFragmentNode | FragmentSpreadNode):
            yield _opened(document, part)


def _opened(document: DocumentNode, part: Node) -> DocumentNode:
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}

    class Opening(Visitor):
        def leave_selection_set(self, node: SelectionSetNode, *_: Any) -> Any:
            if not any(each is part for each in node.selections):
                return None
            selections: list[Any] = []
            for each in node.selections:
                inner: Any = fragments.get(each.name.value) if isinstance(each, FragmentSpreadNode) else each
                selections += list(inner.selection_set.selections) if each is part and inner is not None else [each]
            return SelectionSetNode(selections=tuple(selections))

    opened = visit(document, Opening())
    return _kept(opened, lambda _: True) or opened

"""The oracle: compares plans with graphql-core's own execution of the same schema: bytes, errors and paths, one query after another."""

import gc
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    visit,
)

from graph.context import Services
from graph.documents.document_validator import validate_document
from graph.documents.documents import PreparedOperation, make_prepared_operation
from graph.errors import Code
from graph.http.responses import serialize_result
from graph.operations.execution import Graph
from graph.operations.results import ErrorEntry, OperationResult
from graph.planner.plan import OperationPlan
from storage import tables
from tests.make import token_of

MAX_PRUNINGS = 4
"""How often failed fields are removed from a query, and the rest run again."""


OPERATION_SECONDS = 60.0
SHRINK_SECONDS = 30.0


class FallbackCountingGraph(Graph):
    """Counts the operations that graphql-core executed, and stores what the last plan raised."""

    fallback_count = 0
    last_error: BaseException | None = None

    def _find_plan(self, *given: Any) -> Any:
        # A second time, if the first run is not enough.
        found = super()._find_plan(*given) or super()._find_plan(*given)
        return found and (_RecordingPlan(found[0], self), found[1])

    async def _execute(self, *given: Any, **named: Any) -> Any:
        self.fallback_count += 1
        return await super()._execute(*given, **named)


@dataclass(frozen=True)
class _RecordingPlan:
    plan: OperationPlan
    owner: FallbackCountingGraph

    async def run(self, *given: Any) -> Any:
        try:
            return await self.plan.run(*given)
        except BaseException as error:
            self.owner.last_error = error
            raise


class AnswersDiffer(AssertionError):
    """The two results differ."""


@dataclass
class PlanOracle:
    """`comparison_counts`: queries with rows, without rows, with errors that plans report (`refusals`), and with other errors."""

    services: Services
    comparison_counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.reference_graph = Graph(self.services, planner=False)
        self.planned_graph = FallbackCountingGraph(self.services, planner=True)

    async def compare(self, prepared: PreparedOperation, variables: dict[str, Any], viewer: tables.User) -> OperationResult:
        """graphql-core's result. Raises AnswersDiffer when a plan's result differs, or when graphql-core runs what the plan answers."""
        token = token_of(viewer)
        reference = await self.reference_graph.run(prepared, variables, token, request_id="oracle", seconds=OPERATION_SECONDS)
        fallbacks_before, self.planned_graph.last_error = self.planned_graph.fallback_count, None
        planned = await self.planned_graph.run(prepared, variables, token, request_id="oracle", seconds=OPERATION_SECONDS)
        first, second = serialize_with_reasons(reference), serialize_with_reasons(planned)
        if not answers_equal(first, second):
            raise AnswersDiffer(f"graphql-core: {orjson.dumps(first).decode()}\nthe plan:     {orjson.dumps(second).decode()}")
        if count_files(reference) != count_files(planned):
            raise AnswersDiffer(f"graphql-core names {count_files(reference)} files, the plan {count_files(planned)}")
        if self.planned_graph.fallback_count > fallbacks_before and is_reported_by_plans(reference.errors, first):
            why = (
                "".join(traceback.format_exception(self.planned_graph.last_error)[-4:]) if self.planned_graph.last_error is not None else ""
            )
            raise AnswersDiffer(f"graphql-core had to answer what a plan answers: {orjson.dumps(first).decode()}\n{why}")
        if reference.errors:
            self.comparison_counts["refusals" if is_reported_by_plans(reference.errors, first) else "errors"] += 1
        else:
            self.comparison_counts["rows" if has_rows(reference.data) else "empty"] += 1
        return reference


def is_reported_by_plans(errors: Sequence[ErrorEntry], result: Any) -> bool:
    """Whether a plan reports all errors itself: operation errors at positions that the answer has once.

    An error that nulls a parent may hide those of lists, for which graphql-core runs.
    """
    if any(error.path is None or error.locations is not None or error.code is Code.INTERNAL for error in errors):
        return False
    paths = {tuple(error.path or ()) for error in errors}
    return paths == (_errors_by_null_path(result).keys() if errors else set()) and all(
        isinstance(part, str) for path in paths for part in path
    )


def serialize_with_reasons(result: OperationResult) -> dict[str, Any]:
    """The answer, and of each error what only v3 reads."""
    answer = serialize_result(result, "oracle")
    for entry, error in zip(answer.get("errors", ()), result.errors, strict=True):
        entry["extensions"] |= {"subject": error.subject, "reason": error.reason, "retryAfter": error.retry_after}
    return answer


def count_files(outcome: OperationResult) -> int:
    """The number of files that the result names. Files below an error may have been named or not, depending on timing."""
    answer = orjson.dumps(outcome.data).decode()
    return sum(f'"{handle}"' in answer for handle in outcome.files)


def answers_equal(first: Any, second: Any) -> bool:
    """Whether the results are equal to the byte, except for the order of errors, which depends on timing.

    When several errors null the same object, graphql-core reports those that were raised before, which depends on timing: there must be one
    in both.
    """
    if "errors" not in first or "errors" not in second:
        return orjson.dumps(first) == orjson.dumps(second)
    if orjson.dumps(first.get("data")) != orjson.dumps(second.get("data")):
        return False
    one, other = _errors_by_null_path(first), _errors_by_null_path(second)
    return one.keys() == other.keys() and all(
        errors == other[place] or any(len(path) > len(place) for path, _ in errors | other[place]) for place, errors in one.items()
    )


def _errors_by_null_path(result: Any) -> dict[tuple[Any, ...], set[tuple[tuple[Any, ...], str]]]:
    """The errors with their paths, by the position of the null that replaces them."""
    found: dict[tuple[Any, ...], set[tuple[tuple[Any, ...], str]]] = {}
    for error in result["errors"]:
        path, null_path, data = tuple(error.get("path", ())), [], result.get("data")
        for part in path:
            if data is None:
                break
            null_path.append(part)
            data = data[part]
        error_json = orjson.dumps({key: value for key, value in error.items() if key != "path"}).decode()
        found.setdefault(tuple(null_path), set()).add((path, error_json))
    return found


def has_rows(data: Any) -> bool:
    """Whether the result has more than nulls, empty lists and counts of zero."""
    if isinstance(data, dict):
        return any(has_rows(each) for key, each in data.items() if key != "__typename")
    if isinstance(data, list):
        return bool(data) and any(has_rows(each) for each in data)
    return data is not None and data is not False and data != 0


def require_valid(document: DocumentNode) -> DocumentNode:
    """Raises GraphQLError for what the schema rejects."""
    if errors := validate_document(document, max_errors=1):
        raise errors[0]
    return document


def prepare_document(document: DocumentNode) -> PreparedOperation:
    """The single operation of a valid document; validating takes longer than running it."""
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    return make_prepared_operation(document, operation)


def remove_fields(document: DocumentNode, keys: Collection[str]) -> DocumentNode | None:
    """The document without the fields of these response names, and without what is then empty or unused; None: nothing is left."""
    return _filter_document(document, lambda node: not (isinstance(node, FieldNode) and (node.alias or node.name).value in keys))


def _filter_document(document: DocumentNode, predicate: Callable[[Any], bool]) -> DocumentNode | None:
    """The document reduced to the given parts, without empty selections, unused fragments and unused variables; None: nothing is left."""
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    definitions = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    fragments: dict[str, FragmentDefinitionNode | None] = {}

    def fragment(name: str) -> FragmentDefinitionNode | None:
        if name not in fragments:
            selections = selected(definitions[name].selection_set)
            fragments[name] = _copy_node(definitions[name], selection_set=selections) if selections is not None else None
        return fragments[name]

    def selected(selections: SelectionSetNode) -> SelectionSetNode | None:
        found: list[Any] = []
        for node in selections.selections:
            if not predicate(node) or (isinstance(node, FragmentSpreadNode) and fragment(node.name.value) is None):
                continue
            changed: dict[str, Any] = {}
            if node.directives and (directives := tuple(each for each in node.directives if predicate(each))) != node.directives:
                changed["directives"] = directives
            if isinstance(node, FieldNode) and node.arguments:
                changed["arguments"] = tuple(argument(each) for each in node.arguments if predicate(each))
            inner = getattr(node, "selection_set", None)
            if inner is not None:
                if (filtered := selected(inner)) is None:
                    continue
                changed["selection_set"] = filtered
            found.append(_copy_node(node, **changed) if changed else node)
        return SelectionSetNode(selections=tuple(found)) if found else None

    def argument(node: Any) -> Any:
        if isinstance(node.value, ObjectValueNode):
            fields = tuple(argument(each) for each in node.value.fields if predicate(each))
            return _copy_node(node, value=ObjectValueNode(fields=fields))
        return node

    whole = selected(operation.selection_set)
    if whole is None:
        return None
    used: set[str] = set()
    _collect_uses(whole, fragments, used)
    declared = tuple(each for each in operation.variable_definitions or () if f"${each.variable.name.value}" in used)
    left = [each for name, each in fragments.items() if each is not None and f"...{name}" in used]
    return DocumentNode(definitions=(_copy_node(operation, selection_set=whole, variable_definitions=declared), *left))


def _copy_node(node: Any, **changed: Any) -> Any:
    return type(node)(**{**{key: getattr(node, key) for key in node.keys if key != "loc"}, **changed})


def _collect_uses(node: Any, fragments: Mapping[str, Any], found: set[str]) -> None:
    """The fragments, as `...F`, and the variables, as `$v`, that are used from here on."""
    if isinstance(node, VariableNode):
        found.add(f"${node.name.value}")
    elif isinstance(node, FragmentSpreadNode) and f"...{node.name.value}" not in found:
        found.add(f"...{node.name.value}")
        _collect_uses(fragments[node.name.value].selection_set, fragments, found)
    for key in ("selections", "selection_set", "arguments", "directives", "value", "values", "fields"):
        part = getattr(node, key, None)
        for each in part if isinstance(part, tuple | list) else (part,):
            if isinstance(each, Node):
                _collect_uses(each, fragments, found)


async def compare_pruned(oracle: PlanOracle, document: DocumentNode, variables: dict[str, Any], viewer: tables.User) -> None:
    """Compares a query, and the rest of it without the fields that failed.

    Raises AnswersDiffer, with the smallest query that differs, and GraphQLError if an invalid query differs: it has no plan.
    """
    for _ in range(MAX_PRUNINGS):
        operation = prepare_document(document)
        try:
            outcome = await oracle.compare(operation, variables, viewer)
        except AnswersDiffer as error:
            require_valid(document)
            raise await shrink_difference(oracle, document, variables, viewer, error) from None
        failed = {str([part for part in problem.path if isinstance(part, str)][-1]) for problem in outcome.errors if problem.path}
        if not failed:
            return
        rest = remove_fields(document, failed)
        if rest is None:
            return
        document = rest


async def shrink_difference(
    oracle: PlanOracle, document: DocumentNode, variables: dict[str, Any], viewer: tables.User, error: AnswersDiffer
) -> AnswersDiffer:
    """The same difference for a minimal query, or the smallest that was found in time."""
    until = monotonic() + SHRINK_SECONDS
    shorter = True
    while shorter and monotonic() < until:
        shorter = False
        gc.collect()
        for candidate in _shrink_candidates(document):
            try:
                await oracle.compare(prepare_document(require_valid(candidate)), _declared_variables(variables, candidate), viewer)
            except AnswersDiffer as still:
                document, error, shorter = candidate, still, True
                break
            except GraphQLError:
                continue
            if monotonic() > until:
                break
    declared_variables = _declared_variables(variables, document)
    return AnswersDiffer(f"{viewer.username}: {print_ast(document)}\n{declared_variables}\n{error}")


def _declared_variables(variables: dict[str, Any], document: DocumentNode) -> dict[str, Any]:
    (operation,) = [node for node in document.definitions if isinstance(node, OperationDefinitionNode)]
    declared = {each.variable.name.value for each in operation.variable_definitions or ()}
    return {name: value for name, value in variables.items() if name in declared}


def _shrink_candidates(document: DocumentNode) -> Iterator[DocumentNode]:
    """The document with one part less, the largest parts first; or with the contents of a fragment instead of it."""
    parts: list[Any] = []

    class NodeCollector(Visitor):
        def enter(self, node: Any, *_: Any) -> None:
            if isinstance(node, FieldNode | InlineFragmentNode | FragmentSpreadNode | ArgumentNode | DirectiveNode | ObjectFieldNode):
                parts.append(node)

    visit(document, NodeCollector())
    for part in sorted(parts, key=lambda node: -len(print_ast(node))):
        if (found := _filter_document(document, lambda node, part=part: node is not part)) is not None:
            yield found
    for part in parts:
        if isinstance(part, InlineFragmentNode | FragmentSpreadNode):
            yield _inline_fragment(document, part)


def _inline_fragment(document: DocumentNode, part: Node) -> DocumentNode:
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}

    class FragmentInliner(Visitor):
        def leave_selection_set(self, node: SelectionSetNode, *_: Any) -> Any:
            if not any(each is part for each in node.selections):
                return None
            selections: list[Any] = []
            for each in node.selections:
                inner: Any = fragments.get(each.name.value) if isinstance(each, FragmentSpreadNode) else each
                selections += list(inner.selection_set.selections) if each is part and inner is not None else [each]
            return SelectionSetNode(selections=tuple(selections))

    opened = visit(document, FragmentInliner())
    return _filter_document(opened, lambda _: True) or opened

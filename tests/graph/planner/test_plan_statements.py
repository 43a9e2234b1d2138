"""The statements of plans: compiled once for a node and variant, dropped with the plan. No database is needed."""

from dataclasses import dataclass

import pytest

from graph.planner.sql import statements
from graph.planner.sql.statements import PlanStatements, next_node_id
from storage.caches import LruCache


@dataclass
class Statement:
    sql: str
    size: int = 100


def test_a_statement_is_compiled_once_for_a_node_and_a_variant() -> None:
    plan, node, other = PlanStatements(), next_node_id(), next_node_id()
    first = plan.find(node, ("page", 1), lambda: Statement("a"))
    assert plan.find(node, ("page", 1), lambda: Statement("b")) is first
    assert plan.find(node, ("page", 2), lambda: Statement("c")).sql == "c"
    assert plan.find(other, ("page", 1), lambda: Statement("d")).sql == "d"


def test_the_statements_of_a_plan_are_dropped_with_it() -> None:
    plan, kept, node = PlanStatements(), PlanStatements(), next_node_id()
    before = len(statements._STATEMENTS)
    kept.find(next_node_id(), (), lambda: Statement("kept"))
    for number in range(3):
        plan.find(node, (number,), lambda: Statement("dropped"))
    assert len(statements._STATEMENTS) == before + 4
    del plan
    assert len(statements._STATEMENTS) == before + 1


def test_an_evicted_statement_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    small = LruCache(statements.PLAN_STATEMENT_CACHE_BOUNDS, statements._statement_size, statements._STATEMENTS._on_evict, max_entries=1)
    monkeypatch.setattr(statements, "_STATEMENTS", small)
    plan, node = PlanStatements(), next_node_id()
    for sql in ("a", "b", "c"):
        assert plan.find(node, (sql,), lambda sql=sql: Statement(sql)).sql == sql  # type: ignore[misc]
    assert len(plan._keys) == len(small) == 1
    assert plan.find(node, ("a",), lambda: Statement("again")).sql == "again"

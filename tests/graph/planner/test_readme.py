"""What graph/planner/README.md shows of one query is what the planner makes of it."""

import re
from pathlib import Path

import pytest
from graphql import parse
from sqlalchemy.dialects.postgresql.asyncpg import dialect as postgresql_dialect

from graph.context import StaticSettings
from graph.planner.explain import explain
from storage.database.statements.list_parameters import use_list_parameters
from tests.graph.planner.test_codegen import generated_sources
from tests.support.queries.oracle import prepare_document

PLANNER = Path(__file__).parents[3] / "graph" / "planner"
README = (PLANNER / "README.md").read_text(encoding="utf-8")
ELLIPSIS = "…"


def block(language: str, beginning: str) -> str:
    (found,) = [each for each in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if each.startswith(beginning)]
    return str(found)


def pieces(excerpt: str) -> list[str]:
    """The pieces between ellipses, without white space and comments."""
    return ["".join(piece.split()) for piece in re.sub(r"  # .*", "", excerpt).split(ELLIPSIS)]


def find_missing(excerpt: str, text: str) -> str | None:
    """The first piece of an excerpt that does not follow in the text."""
    text, end = "".join(text.split()), 0
    for piece in pieces(excerpt):
        found = text.find(piece, end)
        if found < 0:
            return piece
        end = found + len(piece)
    return None


@pytest.fixture(scope="module")
def compiled() -> tuple[str, list[str]]:
    """The SQL of the query's first statement, and the sources that are generated for it."""
    dialect = postgresql_dialect()
    use_list_parameters(dialect)
    settings = StaticSettings("http://127.0.0.1", shows_avatars=False, ssh_prefix="git@127.0.0.1:")
    with generated_sources() as sources:
        explanation = explain(prepare_document(parse(block("graphql", "query"))), {"path": "acme/web"}, dialect, settings)
    return explanation.nodes[0].statements[0].sql, sources


class TestQuery:
    def test_has_the_statement(self, compiled: tuple[str, list[str]]) -> None:
        assert find_missing(block("sql", "WITH"), compiled[0]) is None

    def test_has_the_generated_source(self, compiled: tuple[str, list[str]]) -> None:
        excerpt = block("python", "lambda rows")
        assert any(find_missing(excerpt, source) is None for source in compiled[1]), compiled[1]


def test_the_stages_are_those_of_the_compiler() -> None:
    missing = [line for line in block("python", "collector").splitlines() if find_missing(line, (PLANNER / "compiler.py").read_text())]
    assert not missing

"""`forgefront dump` and `forgefront restore`: from one database into the other, in chains, with and without keys, and what is refused."""

from pathlib import Path

import pytest

from storage import integrity, tables
from storage.git.refs import projection
from tests.make import DataFactory
from tests.support.git.git_history import git
from tests.support.imports.dumps import DumpTool, contents_of, read_dump
from tests.support.imports.instance_comparison import compare_answers, open_instance
from tests.support.queries.edge_case_data import create_edge_cases

pytestmark = pytest.mark.usefixtures("isolated_environment")

QUERIES = 4


class TestRoundTrip:
    async def test_answers_are_those_of_the_original(self, make: DataFactory, tmp_path: Path, dumps: DumpTool) -> None:
        edge_cases = await create_edge_cases(make, tmp_path / "source.git")
        build = await make.build(edge_cases.projects[0], "a" * 40)
        await make.artifact(build, b"small")
        await make.artifact(await make.build(edge_cases.projects[0], "b" * 40), bytes(400_000))
        await make.trace(build, "first\n", "second\n")
        await make.upload(edge_cases.projects[0], b"uploaded")
        first = await dumps.dump()
        config = await dumps.restore(first)
        async with open_instance(config) as restored:
            assert await compare_answers(make.services, restored.graph.services, edge_cases, queries=QUERIES) > 100
            for project in edge_cases.projects:
                path = restored.repositories.path_of(project.id)
                row = await make.fetch(tables.Project, project.id)
                assert row is not None and projection.read_version(path) == row.refs_version
                assert git(path, "for-each-ref") == git(make.services.repositories.path_of(project.id), "for-each-ref")
                git(path, "fsck", "--strict")
            assert await integrity.find_broken_references(restored.database) == []
        # The same rows have the same lines in both databases.
        again = await dumps.dump_instance(config.data, config.database_url, "again.tar")
        assert contents_of(read_dump(again)) == contents_of(read_dump(first))
        assert read_dump(again).tables == read_dump(first).tables

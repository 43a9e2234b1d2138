"""Imports in dumps: what is restored can be continued."""

from typing import Any

from forgefront.config import Config
from graph.operations.execution import Graph
from storage import tables
from storage.database.engine import Database
from storage.secrets import TokenCipher, load_key
from tests.graph.imports.support import begin, rows_of, user_item
from tests.graph.imports.test_projects import group_item, project_item
from tests.make import DataFactory, open_services
from tests.support.api_clients import Ask
from tests.support.imports.dumps import DumpTool


async def import_things(ask: Ask, admin: Any) -> list[list[tuple[str, list[str]]]]:
    running = await begin(ask, admin)
    return [
        await running.write("importUsers", user_item(1), user_item(2)),
        await running.write("importGroups", group_item(70)),
        await running.write("importProjects", project_item(1)),
        await running.write("importVariables", {"projectId": 1, "key": "KEY", "value": "V"}),
    ]


class TestDumps:
    async def test_have_the_identities_of_imported_things(self, ask: Ask, make: DataFactory, database: Database, dumps: DumpTool) -> None:
        admin = await make.admin()
        await import_things(ask, admin)
        config: Config = await dumps.restore(await dumps.dump())
        restored = Database(config.database_url)
        try:
            for table in (tables.InstanceImport, tables.Project, tables.User):
                assert await rows_of(restored, table) == await rows_of(database, table)
        finally:
            await restored.close()
        cipher = TokenCipher(load_key(config.data, None))
        assert cipher.derive("a") == make.services.cipher.derive("a")
        async with open_services(config.database_url, config.data) as services:
            outcomes = await import_things(Ask(Graph(services)), admin)
        assert {outcome for written in outcomes for outcome, _ in written} == {"UNCHANGED"}

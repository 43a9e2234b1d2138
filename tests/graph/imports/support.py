"""Runs imports as the importing program does."""

from typing import Any

from sqlalchemy import select
from sqlmodel import col

from storage import tables
from storage.database.engine import Database
from tests.support.api_clients import Ask

SOURCE = "https://old.example"
BEGIN = """mutation ($input: BeginImportInput!) {
    beginImport(input: $input) {
        instanceImport { databaseId source keepIds state finishedAt user { username } identityCounts { kind count } }
        userErrors { field message code }
    }
}"""
FINISH = """mutation ($input: FinishImportInput!) {
    finishImport(input: $input) { instanceImport { databaseId state } userErrors { field message code } }
}"""
ITEMS = """mutation ($input: %sInput!) {
    %s(input: $input) {
        results { sourceId databaseId outcome errors { field message code } }
        userErrors { field message code }
    }
}"""
T0 = "2014-03-02T10:00:00Z"
T1 = "2015-04-03T11:30:00.250000Z"


class RunningImport:
    """A running import, whose items an administrator writes."""

    def __init__(self, ask: Ask, admin: tables.User, import_id: int) -> None:
        self._ask = ask
        self.admin = admin
        self.id = import_id

    async def payload(self, mutation: str, items: list[dict[str, Any]], viewer: tables.User | None = None) -> Any:
        name = mutation[0].upper() + mutation[1:]
        values = {"importId": self.id, "items": items}
        return (await self._ask.data(ITEMS % (name, mutation), viewer or self.admin, input=values))[mutation]

    async def write(self, mutation: str, *items: dict[str, Any]) -> list[tuple[str, list[str]]]:
        """(outcome, the wrong fields with their codes) of each item, of which none refuses the batch."""
        self.results = await self.results_of(mutation, *items)
        return [(each["outcome"], [f"{error['field']} {error['code']}" for error in each["errors"]]) for each in self.results]

    async def results_of(self, mutation: str, *items: dict[str, Any]) -> list[dict[str, Any]]:
        payload = await self.payload(mutation, list(items))
        assert payload["userErrors"] == [], (mutation, payload["userErrors"])
        results: list[dict[str, Any]] = payload["results"]
        return results

    async def ids(self, mutation: str, *items: dict[str, Any]) -> list[int]:
        """The ids of the rows of items, of which none may be skipped or incomplete."""
        results = await self.results_of(mutation, *items)
        assert [each["errors"] for each in results] == [[] for _ in items]
        return [each["databaseId"] for each in results]


async def begin(ask: Ask, admin: tables.User, source: str = SOURCE, *, keep_ids: bool = False) -> RunningImport:
    payload = (await ask.data(BEGIN, admin, input={"source": source, "keepIds": keep_ids}))["beginImport"]
    assert payload["userErrors"] == []
    return RunningImport(ask, admin, payload["instanceImport"]["databaseId"])


def user_item(number: int, **fields: Any) -> dict[str, Any]:
    values = {"sourceId": number, "namespaceId": number + 500, "username": f"Source{number}", "name": f"User {number}"}
    return {**values, "email": f"Source{number}@old.example", "createdAt": T0, **fields}


async def rows_of(database: Database, table: Any, **equal: Any) -> list[dict[str, Any]]:
    """The rows of a table, ordered by id, as they are in the database now."""
    async with database.read_session() as session:
        conditions = [getattr(table, name) == value for name, value in equal.items()]
        rows = await session.execute(select(table).where(*conditions).order_by(col(table.id)))
        return [row.model_dump() for (row,) in rows]

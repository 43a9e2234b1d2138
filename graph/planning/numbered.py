"""Single rows of a project, by their number there or by their id: one statement, with all that is selected of them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, and_

from graph.declare import Numbered
from graph.planning.hanging import EnteredProject, Entering
from graph.planning.leaves import Anomaly
from graph.planning.running import Run
from graph.planning.sources import Wanted
from graph.planning.views import View
from graph.rules.policy import require, require_each
from storage.compiled import Compiled, parameter

PARAMETERS = frozenset(("project", "projects", "number"))


class One:
    """A field that is one row for each object of a level, which are projects."""

    def __init__(self, key: str, declared: Numbered, arguments: int | None, wanted: Wanted, view: View) -> None:
        self.key = key
        self.declared = declared
        self._wanted = wanted
        self.view = view
        self._place = wanted.root.place("project_id")
        self._arguments = arguments
        self._statements: dict[tuple[str, bool], Compiled] = {}
        self._entered: dict[tuple[str, bool], Compiled] = {}

    def _named(self, run: Run) -> tuple[str, int]:
        """The column by which the row is named, and its value. Raises Anomaly for what names none."""
        given = run.arguments[self._arguments] if self._arguments is not None else {}
        name, value = ("id", given.get("database_id")) if given.get("database_id") is not None else ("iid", given.get("iid"))
        if value is None:
            raise Anomaly
        return name, value

    def entering(self, run: Run, entrance: EnteredProject) -> Entering:
        """Raises Anomaly for what names no row."""
        name, value = self._named(run)
        statement = self._entered.get((name, entrance.by_path)) or self._beside(name, entrance)

        async def answer(project: Any, rows: Sequence[Any]) -> Any:
            await require(run.context, self.declared.action, project)
            if rows[0][self._place] is None:
                raise Anomaly
            (found,) = await self.view.fill(run, rows)
            return found

        return Entering(statement, {"number": value}, len(self._wanted.items), answer)

    def _beside(self, name: str, entrance: EnteredProject) -> Compiled:
        root = self._wanted.root
        within = and_(root.column("project_id") == entrance.id, root.column(name) == parameter("number", Integer))
        statement = self._wanted.select(entrance.rows.outerjoin(root.table, within)).add_columns(*entrance.columns)
        made = self._entered[name, entrance.by_path] = Compiled(
            statement, self._wanted.spelling.dialect, frozenset(("number", *entrance.parameters))
        )
        return made

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy raises, and Anomaly where there is no such row."""
        await require_each(run.context, self.declared.action, objects)
        name, value = self._named(run)
        many = len(objects) > 1
        statement = self._statements.get((name, many)) or self._made(name, many)
        projects = [each.id for each in objects]
        hanging = {"projects": self._wanted.spelling.listed(projects)} if many else {"project": projects[0]}
        rows = await run.context.session.fetch(statement.text, statement.values({"number": value, **hanging}))
        found = dict(zip((row[self._place] for row in rows), await self.view.fill(run, rows), strict=True))
        for project, answer in zip(projects, answers, strict=True):
            if project not in found:
                raise Anomaly
            answer[self.key] = found[project]

    def _made(self, name: str, many: bool) -> Compiled:
        spelling, root = self._wanted.spelling, self._wanted.root
        project = root.column("project_id")
        here = spelling.among(project, "projects") if many else project == parameter("project", Integer)
        statement = self._wanted.select(root.table).where(here, root.column(name) == parameter("number", Integer))
        made = self._statements[name, many] = Compiled(statement, spelling.dialect, PARAMETERS)
        return made

"""The project that an operation enters: what the viewer is in it, and the row of it that most ask for, come by one statement."""

from collections.abc import Sequence
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy import Integer, and_, select
from sqlalchemy.inspection import inspect
from sqlmodel import col

from graph.planning.leaves import Anomaly
from graph.planning.numbered import One
from graph.planning.running import Calling, Run, Selection, fill_level
from graph.planning.views import Maker, View
from graph.rules.entering import remember, was_not_found
from graph.rules.finding import key_of
from graph.rules.policy import looks_at, require, sees_project
from storage import tables
from storage.compiled import Compiled, Spelling, parameter
from storage.reading import processor_of
from storage.tables.members import entrance

PARAMETERS = frozenset(("user_id", "entered", "namespace", "path", "number"))


class Entered:
    """A field that is the project of a path or an id, which its argument `named` has.

    One row of it comes with it. Where that is all that is asked of the project, and nothing in it may look the project up, no more of
    the project is read than the policy looks at.
    """

    def __init__(self, key: str, selection: Selection, arguments: int, named: str, spelling: Spelling, *, alone: bool) -> None:
        """`alone`: nothing but one field is selected."""
        self._key = key
        self._selection = selection
        self._arguments = arguments
        self._named = named
        self._dialect = spelling.dialect
        self._one: One | None = next((each for each in selection.fills if isinstance(each, One)), None)
        self._fills = [each for each in selection.fills if each is not self._one]
        self._statements: dict[tuple[str, bool], Compiled] = {}
        one = self._one
        columns = inspect(tables.Project).columns
        self._whole = one is None or not alone or not _keeps_to_its_row(one.view)
        names = columns.keys() if one is None or self._whole else sorted(looks_at(one.declared.action))
        self._columns = [columns[name] for name in names]
        start = len(one.wanted.items) if one is not None else 0
        self._levels = start + len(names)
        processors = [processor_of(column.type, self._dialect) for column in self._columns]
        self._make = Maker(
            tables.Project, [(name, (start + place,), process) for place, (name, process) in enumerate(zip(names, processors, strict=True))]
        )

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy raises, and Anomaly for what is not found."""
        context, one, selection = run.context, self._one, self._selection
        viewer = context.viewer_or_none
        key = key_of(run.arguments[self._arguments][self._named])
        if viewer is None or key is None:
            raise Anomaly
        values: dict[str, Any] = {"user_id": viewer.id}
        name = ""
        if one is not None:
            name, values["number"] = one.named(run)
        if isinstance(key, int):
            values["entered"] = key
        else:
            values["namespace"], values["path"] = key
        by_path = not isinstance(key, int)
        statement = self._statements.get((name, by_path)) or self._made(name, by_path)
        rows = await context.session.fetch(statement.text, statement.values(values))
        if not rows:
            was_not_found(context, key)
            raise Anomaly
        (row,) = rows
        project = self._make(row)
        remember(context, project, row[self._levels : self._levels + 3], key if self._whole else None)
        if not await sees_project(context, project):
            raise Anomaly
        found = selection.shell((project,))
        if one is not None:
            await require(context, one.declared.action, project)
            if row[one.place] is None:
                raise Anomaly
            (found[0][one.key],) = await one.view.fill(run, rows)
        if selection.steps or self._fills:
            await fill_level(run, (project,), found, selection.steps, self._fills)
        for answer in answers:
            answer[self._key] = found[0]

    def _made(self, name: str, by_path: bool) -> Compiled:
        rows, levels, conditions = entrance(by_path=by_path)
        statement = select(*self._columns).select_from(rows)
        if self._one is not None:
            wanted = self._one.wanted
            root = wanted.root
            within = and_(root.column("project_id") == col(tables.Project.id), root.column(name) == parameter("number", Integer))
            statement = wanted.select(rows.outerjoin(root.table, within)).add_columns(*self._columns)
        statement = statement.add_columns(*levels).where(*conditions)
        made = self._statements[name, by_path] = Compiled(statement, self._dialect, PARAMETERS)
        return made


def _keeps_to_its_row(view: View) -> bool:
    """Whether whatever is selected of a row is read off it, by resolvers that wait for nothing."""
    if view.fills or not all(isinstance(step, Calling) and not iscoroutinefunction(step.resolve) for step in view.steps):
        return False
    return all(_keeps_to_its_row(related.view) for _, related in view.relations)

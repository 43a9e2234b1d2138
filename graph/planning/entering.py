"""The project that an operation enters: what the viewer is in it, and what most ask for in it, come by one statement."""

from collections.abc import Sequence
from functools import cache
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy import select
from sqlalchemy.inspection import inspect

from graph.planning.hanging import EnteredProject, Entering
from graph.planning.leaves import Anomaly
from graph.planning.numbered import One
from graph.planning.paging import Pages
from graph.planning.running import Calling, Run, Selection, begin_level, whole
from graph.planning.views import Maker, View
from graph.rules.entering import parameters_of, remember, was_not_found
from graph.rules.finding import key_of
from graph.rules.policy import JUDGED, sees_project
from storage import tables
from storage.compiled import Compiled, Spelling
from storage.reading import processor_of


class Entered:
    """A field that is the project of a path or an id, which its argument `named` has.

    One row of it comes with it, or one page of its rows where that is all that is asked of it. No more of the project is read than the
    policy looks at where nothing else of it is asked, nor looked up by what is selected of the row.
    """

    def __init__(self, key: str, selection: Selection, arguments: int, named: str, spelling: Spelling, *, alone: bool) -> None:
        """`alone`: nothing but one field is selected."""
        self._key = key
        self._selection = selection
        self._arguments = arguments
        self._named = named
        self._dialect = spelling.dialect
        self._with: One | Pages | None = next((each for each in selection.fills if comes_with(each, alone=alone)), None)
        self._fills = [each for each in selection.fills if each is not self._with]
        only = selection.fills[0] if alone and selection.fills else None
        self._alone = (isinstance(only, Pages) and only.hangs_on_projects) or (isinstance(only, One) and _keeps_to_its_row(only.view))
        columns = inspect(tables.Project).columns
        names = sorted(JUDGED) if self._alone else columns.keys()
        once = isinstance(self._with, Pages)
        self._entrances = [_entrance(tuple(names), by_path=by_path, once=once) for by_path in (False, True)]
        self._statements: dict[bool, Compiled] = {}
        self._width = len(names)
        processors = {name: processor_of(columns[name].type, self._dialect) for name in names}
        self._make = Maker(tables.Project, {name: ((place,), processors[name]) for place, name in enumerate(names)})

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy and the arguments raise, and Anomaly for what is not found."""
        context, selection = run.context, self._selection
        viewer = context.viewer_or_none
        key = key_of(run.arguments[self._arguments][self._named])
        if viewer is None or key is None:
            raise Anomaly
        entrance = self._entrances[not isinstance(key, int)]
        entering = self._with.entering(run, entrance) if self._with is not None else self._entering(entrance)
        statement = entering.statement
        values = {"user_id": viewer.id, **parameters_of(key), **entering.values}
        rows = await context.session.fetch(statement.text, statement.values(values))
        if not rows:
            was_not_found(context, key)
            raise Anomaly
        found = rows[0][entering.place :]
        project = self._make(found)
        remember(context, project, found[self._width : self._width + 3], None if self._alone else key)
        if not await sees_project(context, project):
            raise Anomaly
        filled = selection.shell((project,))
        if self._with is not None:
            filled[0][self._with.key] = await entering.answer(project, rows)
        if selection.steps or self._fills:
            await whole(lambda work: begin_level(run, (project,), filled, selection.steps, self._fills, work))
        for answer in answers:
            answer[self._key] = filled[0]

    def _entering(self, entrance: EnteredProject) -> Entering:
        """The project alone."""
        statement = self._statements.get(entrance.by_path)
        if statement is None:
            statement = self._statements[entrance.by_path] = Compiled(select(*entrance.columns), self._dialect, entrance.parameters)
        return Entering(statement, {}, 0, _nothing)


@cache
def _entrance(names: tuple[str, ...], *, by_path: bool, once: bool) -> EnteredProject:
    """All plans share these few: their columns take more memory than the rest of a plan."""
    columns = inspect(tables.Project).columns
    return EnteredProject([columns[name] for name in names], by_path=by_path, once=once)


async def _nothing(project: Any, rows: Sequence[Any]) -> None:
    return None


def comes_with(fill: Any, *, alone: bool) -> bool:
    """Whether the statement that finds the project can bring this as well; it stands in each row of a page, so it is to be small. On SQLite
    a statement costs less than what would be found for each of the rows again."""
    return isinstance(fill, One) or (alone and isinstance(fill, Pages) and fill.hangs_on_projects and not fill.is_sqlite)


def _keeps_to_its_row(view: View) -> bool:
    """Whether whatever is selected of a row is read off it, by resolvers that wait for nothing."""
    if view.fills or not all(isinstance(step, Calling) and not iscoroutinefunction(step.resolve) for step in view.steps):
        return False
    return all(_keeps_to_its_row(related.view) for _, related in view.relations)

"""The relations of rows that are at hand: one statement for all of them, whatever they lead to."""

from collections.abc import Sequence
from typing import Any

from graph.planning.leaves import Anomaly
from graph.planning.running import Run
from graph.planning.sources import Wanted
from graph.planning.views import View
from storage.compiled import Compiled

IDS = frozenset({"ids"})


class Relations:
    """Fills in what `view` has, for each object of a level. `place` is where a row's own id stands."""

    def __init__(self, wanted: Wanted, view: View, place: int) -> None:
        self.keys = {key for key, _ in view.parts}
        self._wanted = wanted
        self._view = view
        self._place = place
        self._compiled: Compiled | None = None

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises Anomaly where a row is gone meanwhile."""
        wanted = self._wanted
        if self._compiled is None:
            table = wanted.root.table
            among = wanted.spelling.among(table.c.id, "ids")
            self._compiled = Compiled(wanted.select(table).where(among), wanted.spelling.dialect, IDS)
        ids = wanted.spelling.listed(list({each.id for each in objects}))
        rows = await run.context.session.fetch(self._compiled.text, self._compiled.values({"ids": ids}))
        filled = await self._view.fill(run, rows)
        place = self._place
        by_id = {row[place]: each for row, each in zip(rows, filled, strict=True)}
        for each, answer in zip(objects, answers, strict=True):
            found = by_id.get(each.id)
            if found is None:
                raise Anomaly
            answer.update(found)

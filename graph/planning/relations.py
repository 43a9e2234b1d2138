"""The relations of rows that are at hand: one statement for all of them, whatever they lead to."""

from collections.abc import Sequence
from typing import Any

from graph.planning.leaves import Anomaly
from graph.planning.running import Run, begin_level, whole
from graph.planning.sources import Wanted
from graph.planning.views import View
from storage.compiled import Compiled

IDS = frozenset({"ids"})


class Relations:
    """Fills in what `view` has, for each object of a level. `place` is where a row's own id stands.

    What a mutation gives may have been removed by it; its relations are those of the object then, which `otherwise` loads.
    """

    otherwise: Sequence[Any] = ()

    def __init__(self, wanted: Wanted, view: View, place: int) -> None:
        self.keys = {key for key, _ in view.parts}
        self._wanted = wanted
        self._view = view
        self._place = place
        self._compiled: Compiled | None = None

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises Anomaly where a row is gone and nothing loads what it led to."""
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
        gone: list[tuple[Any, dict[str, Any]]] = []
        for each, answer in zip(objects, answers, strict=True):
            found = by_id.get(each.id)
            if found is None:
                gone.append((each, answer))
            else:
                answer.update(found)
        if gone:
            if not self.otherwise:
                raise Anomaly
            left, into = [each for each, _ in gone], [answer for _, answer in gone]
            await whole(lambda work: begin_level(run, left, into, self.otherwise, (), work))

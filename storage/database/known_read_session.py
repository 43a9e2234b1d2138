"""Sessions that may use what an earlier session has read (`storage/database/statements/known_reads.py`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from storage.database.sessions import DatabaseSession
from storage.database.statements.known_reads import Identity, KnownRead
from storage.database.text_budget import TextColumns
from storage.database.writers import ConcurrentChange

CHANGED = "changed"


class RecordingSession(Session):
    """A session of the ORM that records which rows it has changed or deleted, in `info[CHANGED]`."""


@event.listens_for(RecordingSession, "after_flush")
def _record_changes(session: Session, _: Any) -> None:
    # Rows of some tables have other keys; such rows are not known.
    rows = [row for row in (*session.dirty, *session.deleted) if hasattr(row, "id")]
    session.info.setdefault(CHANGED, set()).update((type(row), row.id) for row in rows)


class KnownReadSession(DatabaseSession):
    """The part of a write session that reads what is known, and verifies it before a commit that does not check it itself."""

    may_repeat = False
    """Whether the caller repeats the transaction after ConcurrentChange, and after any error while `relies_on_known_read`."""
    uses_known_reads = False
    _known: KnownRead | None = None

    async def read_known(self, statement: Any, values: Mapping[str, Any]) -> Sequence[Any]:
        """As `read`, for a constant statement of tables and integers without lists; may return what an earlier session has read.

        That is so if `uses_known_reads` is set. The commit raises ConcurrentChange if the rows have changed.
        """
        known_reads = self._database.known_reads
        if known_reads is None or not (self.uses_known_reads and self.may_repeat) or self._known is not None or not self._is_unused():
            return await self.read(statement, values)
        known = known_reads.find(statement, values)
        if known is None:
            select = known_reads.find_select(statement)
            rows = await self._fetch_with_reader(*select.bind(values), select.row_factory.text_columns)
            known_reads.keep(statement, values, rows)
            return select.row_factory.session_rows(rows, self._own_row)
        self._known = known
        if self.budget is not None:
            self.budget.row_count += 1
            self.budget.consume(known.text_length, known.text_length)
        return known.select.row_factory.session_rows(known.rows, self._own_row)

    @property
    def relies_on_known_read(self) -> bool:
        return self._known is not None

    async def _verify_known(self) -> None:
        """Reads what was known again, if it was used. Raises ConcurrentChange if it is outdated."""
        known, self._known = self._known, None
        known_reads = self._database.known_reads
        if known is None or known_reads is None:
            return
        # This session may have a transaction, which sees its own changes.
        async with self._database.read_session() as session:
            rows = await session.fetch(*known.select.bind(known.values))
        if list(rows) != list(known.rows):
            known_reads.replace(known, rows)
            raise ConcurrentChange

    def _forget_known(self, changed: Iterable[Identity]) -> None:
        """Forgets what is known of rows that this session has changed."""
        if self._database.known_reads is not None:
            self._database.known_reads.forget(changed)

    def _is_unused(self) -> bool:
        """Whether nothing was written yet, and no transaction has begun."""
        raise NotImplementedError

    async def _fetch_with_reader(self, sql: str, parameters: Sequence[Any], columns: TextColumns | None) -> Sequence[Sequence[Any]]:
        raise NotImplementedError

    def _own_row(self, table: type, columns: dict[str, Any]) -> Any:
        raise NotImplementedError

"""What a statement selects for a plan: columns of a table, of the rows that its foreign keys name, and lists of names beside them.

A `Source` is a table as it stands in the statement, under a name of its own, so that the conditions of a list, which speak of the table
itself, never mean it. What is asked of several places is selected once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, not_, select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from graph.declare import Told
from storage.compiled import Spelling, columns_among
from storage.database import Timestamp
from storage.reading import processor_of

MOST_JOINED = 12
"""Tables of one statement; what is further away is loaded by itself."""


class Named:
    """A table under a name of its own, as `issues__2`, and what is selected of it. All statements share these."""

    def __init__(self, row: Any, number: int, spelling: Spelling) -> None:
        self.mapper: Mapper[Any] = inspect(row)
        self.table: Any = row.__table__.alias(f"{row.__tablename__}__{number}")
        self._spelling = spelling
        self._expressions: dict[Any, Any] = {}

    def column(self, key: str) -> Any:
        """The column of this attribute."""
        return self._kept(key, lambda: self.table.corresponding_column(self.mapper.columns[key]))

    def instant(self, key: str) -> Any:
        return self._kept((key, "bare"), lambda: self._spelling.bare_instant(self.column(key)))

    def names(self, statement: Any) -> Any:
        return self._kept(statement, lambda: self._spelling.gathered(statement([self.column("id")]), self.table))

    def _kept(self, key: Any, make: Callable[[], Any]) -> Any:
        found = self._expressions.get(key)
        if found is None:
            found = self._expressions[key] = make()
        return found


_NAMED: dict[tuple[type, int, str], Named] = {}


def _named(row: type, number: int, spelling: Spelling) -> Named:
    key = (row, number, spelling.dialect.name)
    if key not in _NAMED:
        _NAMED[key] = Named(row, number, spelling)
    return _NAMED[key]


class Wanted:
    """What one statement selects, growing while an operation is compiled. `root` is the table whose rows it gives."""

    def __init__(self, row: type, spelling: Spelling) -> None:
        self.spelling = spelling
        self.items: list[Any] = []
        self._joins: list[tuple[Source, Any]] = []
        self._numbers: Counter[type] = Counter()
        self.root = Source(self, row)

    def add(self, expression: Any) -> int:
        """The place of a value in the statement's rows."""
        self.items.append(expression)
        return len(self.items) - 1

    def named(self, row: type) -> Named:
        """The table under a name that no other has in this statement."""
        self._numbers[row] += 1
        return _named(row, self._numbers[row], self.spelling)

    def joined(self, source: "Source", condition: Any) -> None:
        self._joins.append((source, condition))

    @property
    def is_full(self) -> bool:
        return len(self._joins) >= MOST_JOINED

    def columns(self, *more: Any) -> list[str]:
        """The columns of the root that the statement looks at, with those that `more` expressions do."""
        parts = [*self.items, *(condition for _, condition in self._conditions()), *more]
        return columns_among(parts, self.root.table)

    def _conditions(self) -> "Iterator[tuple[Source, Any]]":
        return ((source, and_(condition, *source.conditions)) for source, condition in self._joins)

    def select(self, rows: Any) -> Select[Any]:
        """The statement over `rows`, which has the root's table in it."""
        if not self.items:
            # Nothing but the number of rows is wanted.
            self.root.place("id")
        for source, condition in self._conditions():
            rows = rows.outerjoin(source.table, condition)
        return select(*self.items).select_from(rows)


class Source:
    """A table as it stands in a statement."""

    def __init__(self, wanted: Wanted, row: Any) -> None:
        self.row = row
        self._named = wanted.named(row)
        self.mapper = self._named.mapper
        self.table = self._named.table
        self.column = self._named.column
        self._wanted = wanted
        self._places: dict[Any, int] = {}
        self._joined: dict[str, Source] = {}

    def processor(self, key: str) -> Callable[[Any], Any] | None:
        """What makes the attribute's value of what the driver gives; None where it is that."""
        return processor_of(self.mapper.columns[key].type, self._wanted.spelling.dialect)  # type: ignore[no-any-return]

    def place(self, key: str) -> int:
        """Where the attribute stands in the statement's rows, as the driver gives it."""
        return self._placed(self.column(key))

    def instant(self, key: str) -> int:
        """Where an instant stands, as it is made most cheaply (`Spelling.bare_instant`)."""
        return self._placed(self._named.instant(key))

    def offset(self, key: str, *, is_text: bool) -> tuple[int, Callable[[Any, int], str]] | None:
        """Where the offset of an instant stands, and what spells an instant, which comes as a text or as a datetime, with one; None: it is
        in UTC."""
        return None

    def names(self, statement: Any) -> int:
        """Where the list of names stands that `statement(ids)` gives of this row's id."""
        return self._placed(self._named.names(statement))

    def _placed(self, expression: Any) -> int:
        key = id(expression)
        if key not in self._places:
            self._places[key] = self._wanted.add(expression)
        return self._places[key]

    def join(self, key: str, target: type) -> "Source | None":
        """The row of `target` that the foreign key `key` names; None when the statement has joined enough."""
        if key not in self._joined:
            if self._wanted.is_full:
                return None
            joined = self._joined[key] = Source(self._wanted, target)
            self._wanted.joined(joined, joined.column("id") == self.column(key))
        return self._joined[key]

    def told(self, told: Told, keys: Sequence[str]) -> "ToldSource | None":
        """The row that tells of the object which these columns name; None when the statement has joined enough."""
        key = ".".join((told.table.__tablename__, *keys))
        if key not in self._joined:
            if self._wanted.is_full:
                return None
            joined = self._joined[key] = ToldSource(self._wanted, told)
            named = (joined.column(column.key) == self.column(key) for column, key in zip(told.by, keys, strict=True))
            self._wanted.joined(joined, and_(*named))
        found: Any = self._joined[key]
        return found  # type: ignore[no-any-return]

    @property
    def conditions(self) -> list[Any]:
        """What else a row must fulfil to be joined."""
        return []

    @property
    def attributes(self) -> list[str]:
        """All that its objects have."""
        return list(self.mapper.columns.keys())

    def needed(self, names: Iterable[str] | None) -> set[str]:
        """The attributes behind what is asked of its objects; `names` None: whatever there is."""
        everything = set(self.attributes)
        if names is None:
            return everything
        wanted = set(names)
        return wanted if wanted <= everything else everything

    @property
    def judged(self) -> tuple[str, ...] | None:
        """What the policy looks at of its objects; None: whatever there is."""
        return None

    def made(self, attribute: str) -> tuple[list[int], Callable[..., Any] | None]:
        """Where the values stand of which an attribute of the object is made, and by what; None: it is the value."""
        return [self.place(attribute)], self.processor(attribute)

    @property
    def is_whole(self) -> bool:
        """Whether the objects of all attributes are rows, for whoever asks for them."""
        return True

    def is_instant(self, key: str) -> bool:
        return isinstance(self.mapper.columns[key].type, Timestamp)


class ToldSource(Source):
    """The rows that tell of objects which are in no table themselves."""

    def __init__(self, wanted: Wanted, told: Told) -> None:
        super().__init__(wanted, told.table)
        self.row = told.row
        self._told = told
        self._whole: set[str] = set()

    @property
    def conditions(self) -> list[Any]:
        unless = self._told.unless
        return [not_(unless[key](self.column(key))) for key in sorted(self._whole & unless.keys())]

    @property
    def attributes(self) -> list[str]:
        return list(self._told.attributes)

    def needed(self, names: Iterable[str] | None) -> set[str]:
        properties = self._told.properties
        opened = None if names is None else [part for name in names for part in properties.get(name, (name,))]
        return super().needed(opened)

    @property
    def judged(self) -> tuple[str, ...] | None:
        return self._told.judged

    def place(self, key: str) -> int:
        self._whole.add(key)
        return super().place(key)

    def instant(self, key: str) -> int:
        self._whole.add(key)
        return super().instant(key)

    def offset(self, key: str, *, is_text: bool) -> tuple[int, Callable[[Any, int], str]] | None:
        offset = self._told.offsets.get(key)
        if offset is None:
            return None
        spell = self._told.spell
        return self.place(offset), (lambda text, minutes: spell(datetime.fromisoformat(text), minutes)) if is_text else spell

    def made(self, attribute: str) -> tuple[list[int], Callable[..., Any] | None]:
        columns, make = self._told.attributes[attribute]
        places = [self.place(column) for column in columns]
        processors = [self.processor(column) for column in columns]
        if make is None or not any(processors):
            return places, make or processors[0]
        return places, lambda *values: make(
            *(value if process is None else process(value) for value, process in zip(values, processors, strict=True))
        )

    @property
    def is_whole(self) -> bool:
        return False


def is_table(row: Any) -> bool:
    return isinstance(inspect(row, raiseerr=False), Mapper)

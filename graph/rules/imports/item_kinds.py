"""How the items of an import become rows, declared for each kind."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from graph.errors import Invalid, UserError
from graph.rules import validation
from storage import tables
from storage.tables import ImportKind
from storage.tables.base import MAX_ID, Row
from storage.tables.import_identities import MAX_SOURCE_ID_LENGTH

if TYPE_CHECKING:
    from graph.rules.imports.batches import Batch

MAX_ITEMS = 100
"""Maximum of items in a batch."""
MERGED = "merged"
"""The digest of an item that is a row which existed here: the import never changes it."""

TARGETS: dict[ImportKind, type[Row]] = {
    ImportKind.USER: tables.User,
    ImportKind.NAMESPACE: tables.Namespace,
    ImportKind.PROJECT: tables.Project,
    ImportKind.MILESTONE: tables.Milestone,
    ImportKind.RUNNER: tables.Runner,
    ImportKind.SNIPPET: tables.Snippet,
    ImportKind.ISSUE: tables.Issue,
    ImportKind.MERGE_REQUEST: tables.MergeRequest,
    ImportKind.BUILD: tables.Build,
}
"""The tables of the kinds to which items refer."""


class ImportOutcome(StrEnum):
    """The result of an item."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ImportField:
    """How a field of an item becomes a column.

    - `column`: the name of the column if it differs from the field's.
    - `default`: the value of the column if the field is omitted or null.
    - `validate(field, value)` returns the column's value, or raises UserError.
    - `is_required`: an invalid value or an unknown reference skips the item; otherwise the field is left out, and reported.
    - `target`: the kind of the item to whose id in the source the field refers.
    - `uses_ghost`: the ghost user replaces null.
    - `is_initial`: an update does not change the column.
    - `is_sealed`: the column `sealed_NAME` has the encrypted value.
    """

    column: str | None = None
    default: Any = None
    validate: Callable[[str, Any], Any] | None = None
    is_required: bool = False
    target: ImportKind | None = None
    uses_ghost: bool = False
    is_initial: bool = False
    is_sealed: bool = False


def reference(target: ImportKind, *, is_required: bool = True) -> ImportField:
    return ImportField(target=target, is_required=is_required)


def key_of(*names: str) -> Callable[[Mapping[str, Any]], str]:
    """The key of items that are identified by these fields, as `12/bug` for a label."""
    return lambda values: "/".join(str(values[name]).strip() for name in names)


AUTHOR = ImportField(target=ImportKind.USER, is_required=True, uses_ghost=True)
CREATED_AT = ImportField(is_initial=True)
TIMES = {"created_at": CREATED_AT, "updated_at": ImportField()}
"""The times of a row; without one in the source it is that of the import."""


@dataclass(frozen=True)
class UniqueKey:
    """Columns that are unique together, and the field that is wrong if another row has the same values."""

    columns: tuple[str, ...]
    field: str


Step = Callable[["Batch"], Awaitable[None]]


@dataclass(frozen=True)
class ItemKind:
    """A kind of items.

    - `key(values)` identifies an item in the source.
    - `unique`: with `adopts`, an existing row with the values of the first one is what the item is; otherwise it is an error.
    - `reuses_ids`: SQLite may give the id of a deleted row to another one, so that an item is a row only if they were created at the same
      time.
    - `may_renumber`: a kept id that is taken is replaced by another.
    - `prepare` computes columns from the values and the references; `match` finds the rows of items that were not imported before;
      `write_related` writes what belongs to the rows, after them.
    """

    kind: ImportKind
    table: type[Row]
    fields: Mapping[str, ImportField]
    key: Callable[[Mapping[str, Any]], str] = lambda values: str(values["source_id"])
    unique: tuple[UniqueKey, ...] = ()
    adopts: bool = False
    may_renumber: bool = False
    reuses_ids: bool = False
    prepare: Step | None = None
    match: Step | None = None
    write_related: Step | None = None


@dataclass
class Item:
    """An item while its batch is written. `outcome` is None until it is known.

    `columns` are the columns of its row, `initial` those that are written only when it is created, `secrets` those to encrypt. `extras` is
    what the steps of its kind need besides; all four are compared with what was written last. `related` are ids of rows that belong to it,
    and `before` values of the row as it was, which are not compared. `row_id` is the id of its row, once it has one, and `is_new` whether
    the row does not exist yet.
    """

    key: str
    values: Mapping[str, Any]
    columns: dict[str, Any] = field(default_factory=dict)
    initial: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)
    related: dict[str, int] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    errors: list[UserError] = field(default_factory=list)
    row_id: int | None = None
    is_new: bool = True
    digest: str = ""
    last_digest: str | None = None
    outcome: ImportOutcome | None = None

    def merge(self, row_id: int) -> None:
        """Makes the item a row that exists here, and stays as it is."""
        self.row_id, self.is_new, self.digest, self.outcome = row_id, False, MERGED, ImportOutcome.UPDATED

    def skip(self, error: UserError) -> None:
        self.errors.append(error)
        self.outcome = ImportOutcome.SKIPPED

    def requested_id(self) -> int | None:
        """The id that the row has if ids are kept; None if the source has none. Raises Invalid."""
        value = self.values.get("source_id")
        return None if value is None else parse_row_id("sourceId", value)


def parse_row_id(name: str, value: str) -> int:
    """An id of the source that a row can have. Raises Invalid."""
    if value.isascii() and value.isdigit() and 1 <= int(value[:20]) <= MAX_ID:
        return int(value[:20])
    raise Invalid(name, f"must be a number between 1 and {MAX_ID} to be kept")


def validate_key(key: str) -> None:
    """Raises Invalid for what cannot be stored as a source id."""
    validation.validate_string("sourceId", key, max_length=MAX_SOURCE_ID_LENGTH)
    if not key:
        raise Invalid("sourceId", "can't be blank")

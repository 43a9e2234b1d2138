"""Issues of an import."""

from functools import partial

from graph.rules.imports.contents import issuables
from graph.rules.imports.item_kinds import ItemKind
from storage import tables
from storage.tables import CounterKind, ImportKind, IssueState

ISSUES = ItemKind(
    ImportKind.ISSUE,
    tables.Issue,
    issuables.ISSUABLE_FIELDS,
    unique=(issuables.UNIQUE_IID,),
    prepare=partial(issuables.prepare, closed_state=IssueState.CLOSED),
    write_related=partial(issuables.write_related, counter=CounterKind.ISSUE),
)

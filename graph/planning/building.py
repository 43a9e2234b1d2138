"""Builds views of the rows that statements give: which columns a selection needs, which tables it joins, what is left to resolvers."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from graphql import GraphQLField, GraphQLList, GraphQLObjectType, SelectionSetNode, is_leaf_type
from sqlalchemy import Boolean, Date
from sqlalchemy import Enum as EnumType
from sqlalchemy.inspection import inspect

from graph.declare import ENTITIES, Identity, NamesOf, Numbered, Same, Told, ToMany, ToOne, global_id
from graph.installing import Loading, declared_of, filling_of, is_filled, metadata_of
from graph.installing import Reading as Column
from graph.planning.leaves import instants_of, is_plain
from graph.planning.numbered import One
from graph.planning.paging import Connected, Edges, Pages
from graph.planning.relations import Relations
from graph.planning.running import Calling, Loaded, Reading, Together, Way
from graph.planning.sources import Source, Wanted, is_table
from graph.planning.views import Constant, Later, Made, Maker, Part, Related, Value, View
from storage.compiled import Spelling

ROWS = {entity.name: row for row, entity in ENTITIES.items() if is_table(row)}
"""The name of a type → the table of its rows."""


def row_of(kind: Any) -> Any:
    """The table of a type's rows; None for types that are in none."""
    return ROWS.get(kind.name) if is_filled(kind) else None


class Asked(NamedTuple):
    """A field of a selection: its key in the answer, its nodes, what it is (None: `__typename`), and the response keys down to it."""

    key: str
    nodes: list[Any]
    field: Any
    keys: tuple[str, ...]


class Builder:
    """Builds for one plan. `compiler` reads the operation."""

    def __init__(self, compiler: Any, spells: Spelling) -> None:
        self._compiler = compiler
        self._spells = spells

    # Of one table's rows

    def view(self, kind: GraphQLObjectType, sets: Iterable[SelectionSetNode], above: Way | None, source: Source, wanted: Wanted) -> View:
        """What a selection makes of the rows of `source`."""
        found: dict[str, Any] = {}
        steps: list[Any] = []
        fills: list[Any] = []
        columns: list[tuple[Asked, str]] = []
        way = Way(kind.name, above)
        for asked in self._compiler.fields(kind, sets):
            key, field = asked.key, asked.field
            if field is None:
                found[key] = Constant(kind.name)
                continue
            filling = filling_of(field)
            found[key] = Later()
            if isinstance(filling, Column) and filling.key in source.mapper.columns and is_leaf_type(opened(field.type)[1]):
                columns.append((asked, filling.key))
            elif isinstance(declared_of(field), Identity) and "id" in source.attributes:
                found[key] = Value(source.place("id"), lambda value: global_id(kind.name, value), True, False)
            elif (part := self._made(asked, way, source) or self._part(asked, way, source, wanted)) is not None:
                found[key] = part
            elif (told := self._told(kind, asked, way, source, wanted)) is not None:
                found[key] = told
            elif (below := self.below(asked, way)) is not None:
                fills.append(below)
            else:
                place_step(self._compiler.step(kind, asked, way), steps, fills)
        needs = _needs([*steps, *fills], source)
        for asked, attribute in columns:
            found[asked.key] = self._value(source, attribute, asked, bare=attribute not in needs)
        make = Maker(source.row, {each: source.made(each) for each in sorted(needs)}) if needs else None
        whole = source.row if source.is_whole and len(needs) == len(source.attributes) else None
        return View(list(found.items()), steps, fills, make, whole)

    def _part(self, asked: Asked, way: Way, source: Source, wanted: Wanted) -> Part | None:
        """A relation that the statement joins, or names that it gathers; None for what it does not hold."""
        declared = declared_of(asked.field)
        needed, inner = opened(asked.field.type)
        if isinstance(declared, ToOne):
            target = row_of(inner)
            joined = source.join(declared.key, target) if target is not None else None
            if joined is None:
                return None
            view = self.view(inner, sets_of(asked.nodes), way, joined, wanted)
            return Related(view, joined.place("id"), needed)
        if isinstance(declared, NamesOf) and self._is_plain_names(declared, inner):
            return Value(source.names(declared.statement), None, True, False, self._spells.names_of(declared.statement([])))
        return None

    def _told(self, kind: GraphQLObjectType, asked: Asked, way: Way, source: Source, wanted: Wanted) -> Related | None:
        """What a row tells of an object that is in no table; None where there is none such, or more is asked of it."""
        told: Told | None = metadata_of(asked.field).get("told")
        needed, inner = opened(asked.field.type)
        sets = sets_of(asked.nodes)
        if told is None or needed or not {each.nodes[0].name.value for each in self._compiler.fields(inner, sets)} <= told.fields:
            return None
        keys = metadata_of(asked.field)["needs"]
        joined = source.told(told, keys)
        if joined is None:
            return None
        make = Maker(source.row, {key: source.made(key) for key in keys})
        otherwise = Together(self._compiler.step(kind, asked, way))
        return Related(self.view(inner, sets, way, joined, wanted), joined.place("id"), False, otherwise, make)

    def _made(self, asked: Asked, way: Way, source: Source) -> Made | Constant | None:
        """A computed field that is made of columns alone; None for what is no such thing."""
        make = self._compiler.made(asked, way)
        if make is None:
            return None
        if isinstance(make, Same):
            return Constant(make.value)
        keys = metadata_of(asked.field)["needs"]
        assert set(keys) <= set(source.attributes)  # noqa: S101 - they are columns of its row
        return Made(make, [source.made(key) for key in keys], opened(asked.field.type)[0])

    def _is_plain_names(self, declared: NamesOf, kind: Any) -> bool:
        if not isinstance(kind, GraphQLList) or opened(kind.of_type)[1].name != "String" or declared.pick is not None:
            return False
        return not hasattr(inspect(declared.statement([]).column_descriptions[1]["expr"], raiseerr=False), "mapper_registry")

    def _value(self, source: Source, attribute: str, asked: Asked, *, bare: bool) -> Value:
        self._compiler.enter(asked)
        needed, leaf = opened(asked.field.type)
        column = source.mapper.columns[attribute]
        empty = bool(column.nullable)
        kind = column.type
        if source.is_instant(attribute) and leaf.name == "DateTime":
            place = source.instant(attribute) if bare else source.place(attribute)
            is_text = bare or self._spells.is_sqlite
            together = self._compiler.instants(instants_of(is_text))
            offset = source.offset(attribute, is_text=is_text)
            if offset is not None:
                offset = offset[0], self._compiler.formed(offset[1])
            return Value(place, None, needed, empty, together, offset)
        spell = self._compiler.spelling(leaf, True)
        process = source.processor(attribute)
        place = source.place(attribute)
        if isinstance(kind, EnumType) and kind.enum_class is not None:
            words = {str(member.value): spell(member) for member in kind.enum_class}
            return Value(place, words, needed, empty)
        if isinstance(kind, Date) and leaf.name == "Date" and self._spells.is_sqlite:
            # Kept as it is spelled.
            return Value(place, None, needed, empty)
        if is_plain(column, leaf):
            return Value(place, bool if process is not None and isinstance(kind, Boolean) else process, needed, empty)
        return Value(place, spell if process is None else lambda value: spell(process(value)), needed, empty)

    # Of objects that a resolver gave

    def relations(self, kind: GraphQLObjectType, related: list[Asked], way: Way) -> Relations | None:
        """One statement for all relations of a level's objects; None where loaders take no more statements than that."""
        row = row_of(kind)
        if row is None or _statements(related) < 2:
            return None
        wanted = Wanted(row, self._spells)
        parts: list[tuple[str, Part]] = []
        for asked in related:
            self._compiler.enter(asked)
            part = self._part(asked, way, wanted.root, wanted)
            if part is not None:
                parts.append((asked.key, part))
        return Relations(wanted, View(parts), wanted.root.place("id")) if parts else None

    # Of lists

    def _one(self, asked: Asked, declared: Numbered, way: Way) -> One | None:
        inner = opened(asked.field.type)[1]
        if row_of(inner) is not declared.table:
            return None
        wanted = Wanted(declared.table, self._spells)
        view = self.view(inner, sets_of(asked.nodes), way, wanted.root, wanted)
        return One(asked.key, declared, self._compiler.argued(asked.field, asked.nodes[0]), wanted, view)

    def below(self, asked: Asked, way: Way) -> Pages | One | None:
        """What a statement reads of the rows that hang on a level's objects, as declared; None for what is no such thing."""
        declared = declared_of(asked.field)
        if isinstance(declared, Numbered):
            return self._one(asked, declared, way)
        if not isinstance(declared, ToMany) or declared.seen is not None:
            return None
        connection: Any = opened(asked.field.type)[1]
        row = row_of(_named(connection.fields["nodes"]))
        if row is not declared.listing.table:
            return None
        wanted = Wanted(row, self._spells)
        shown = self._compiler.shown(connection, asked.nodes)
        parts = self._connected(connection, asked.nodes, way, wanted)
        if parts is None:
            return None
        return Pages(asked.key, declared, self._compiler.argued(asked.field, asked.nodes[0]), wanted, parts, shown)

    def _connected(self, kind: GraphQLObjectType, nodes: list[Any], way: Way, wanted: Wanted) -> Connected | None:
        parts = Connected()
        items = Way(None, Way(kind.name, way))
        for asked in self._compiler.fields(kind, sets_of(nodes)):
            if asked.field is None:
                parts.add(asked.key, Constant(kind.name))
                continue
            inner, sets = _named(asked.field), sets_of(asked.nodes)
            name = asked.nodes[0].name.value
            if name == "nodes":
                parts.add(asked.key, self.view(inner, sets, items, wanted.root, wanted))
            elif name == "edges":
                parts.add(asked.key, self._edges(inner, sets, items, wanted))
            elif name == "pageInfo":
                parts.add(asked.key, [(each.key, each.nodes[0].name.value) for each in self._compiler.fields(inner, sets)])
            elif name == "totalCount":
                parts.add(asked.key, None)
            else:
                return None
        return parts

    def _edges(self, kind: GraphQLObjectType, sets: list[SelectionSetNode], way: Way, wanted: Wanted) -> Edges:
        parts: list[tuple[str, Any]] = []
        for asked in self._compiler.fields(kind, sets):
            if asked.field is None:
                parts.append((asked.key, Constant(kind.name)))
            elif asked.nodes[0].name.value == "cursor":
                parts.append((asked.key, None))
            else:
                node = _named(asked.field)
                parts.append((asked.key, self.view(node, sets_of(asked.nodes), Way(kind.name, way), wanted.root, wanted)))
        return Edges(parts)


def _needs(steps: list[Any], source: Source) -> set[str]:
    """The attributes of the objects that these take."""
    found: set[str] = set()
    for step in steps:
        found |= source.needed(_needed(step.calling if isinstance(step, Together) else step, source))
    return found


def _needed(step: Any, source: Source) -> tuple[str, ...] | None:
    """What a step looks at of its objects; None: whatever there is."""
    if isinstance(step, Calling):
        return () if step.root == "" else step.definition.metadata.get("needs")
    if isinstance(step, Pages):
        judged = source.judged if step.is_judged else ()
        return None if judged is None else (step.of, *judged)
    if isinstance(step, Loaded):
        return (step.loading.key,)
    return (step.attribute,) if isinstance(step, Reading) else None


def _statements(related: list[Asked]) -> int:
    """How many statements loaders take for these fields."""
    targets: set[Any] = set()
    for asked in related:
        declared = declared_of(asked.field)
        targets.add(declared.target if isinstance(declared, ToOne) else declared)
    return len(targets)


def place_step(step: Any, steps: list[Any], fills: list[Any]) -> None:
    """Puts a field among those that are asked for each object, or for all of them."""
    if isinstance(step, Calling) and step.together is not None:
        fills.append(Together(step))
    else:
        steps.append(step)


def is_relation(field: GraphQLField) -> bool:
    return isinstance(declared_of(field), ToOne | NamesOf) and isinstance(filling_of(field), Loading)


def opened(kind: Any) -> tuple[bool, Any]:
    return (True, kind.of_type) if hasattr(kind, "of_type") and not isinstance(kind, GraphQLList) else (False, kind)


def _named(field: Any) -> Any:
    kind = getattr(field, "type", field)
    while hasattr(kind, "of_type"):
        kind = kind.of_type
    return kind


def sets_of(nodes: list[Any]) -> list[SelectionSetNode]:
    return [node.selection_set for node in nodes if node.selection_set is not None]

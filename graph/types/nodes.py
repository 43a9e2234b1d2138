"""The queries `node` and `nodes`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.errors import LimitExceeded
from graph.fields.connection_pages import MAX_FIRST
from graph.fields.entities import ENTITIES, EntityDeclaration, Node, parse_global_id
from graph.rules.lookup import parse_id
from graph.rules.permissions import policy


@strawberry.type
class NodeQueries:
    @strawberry.field(description="Object by global ID; null if it does not exist or the viewer cannot see it.")
    async def node(self, info: Info, id: Annotated[strawberry.ID, strawberry.argument(description="Global ID.")]) -> Node | None:
        (found,) = await _load_nodes(info.context, [id])
        return found  # type: ignore[no-any-return]

    @strawberry.field(description="Objects by global ID, in the order of `ids`, each as in `node`; at most 100.")
    async def nodes(
        self, info: Info, ids: Annotated[list[strawberry.ID], strawberry.argument(description="Global IDs.")]
    ) -> list[Node | None]:
        if len(ids) > MAX_FIRST:
            raise LimitExceeded(f"At most {MAX_FIRST} nodes can be requested at once.")
        return await _load_nodes(info.context, ids)


async def _load_nodes(context: Context, ids: list[strawberry.ID]) -> list[Any]:
    """Load nodes with a constant number of statements per kind of node."""
    entities = {entity.name: entity for entity in ENTITIES.values() if entity.is_node}
    keys = [_parse_lookup_key(entities, global_id) for global_id in ids]
    keys_by_type: dict[str, list[Any]] = {}
    for name, key in filter(None, keys):
        keys_by_type.setdefault(name, []).append(key)
    found: dict[tuple[str, Any], Any] = {}
    for name, some in keys_by_type.items():
        load = entities[name].load_nodes
        nodes = await load(context, some) if load is not None else await _load_visible_rows(context, entities[name], some)
        found.update({(name, key): node for key, node in nodes.items()})
    return [found.get(key) if key else None for key in keys]


def _parse_lookup_key(entities: Mapping[str, EntityDeclaration], global_id: str) -> tuple[str, Any] | None:
    """The kind of a node and the key by which it is found: the id of a row, or what `load_nodes` takes."""
    name, key = parse_global_id(global_id) or ("", "")
    if name not in entities:
        return None
    lookup_key = key if entities[name].load_nodes is not None else parse_id(key)
    return (name, lookup_key) if lookup_key is not None else None


async def _load_visible_rows(context: Context, entity: EntityDeclaration, ids: list[int]) -> dict[int, Any]:
    """The rows that the viewer may see, by id."""
    rows: Sequence[Any] = [row for row in (await context.rows_by_id(entity.row).get_many(ids)).values() if row is not None]
    if entity.filter_nodes is not None:
        rows = await entity.filter_nodes(context, rows)
    else:
        if entity.project_key is not None:
            visible_ids = await policy.filter_visible_projects(context, [getattr(row, entity.project_key) for row in rows])
            rows = [row for row in rows if getattr(row, entity.project_key) in visible_ids]
        if entity.action is not None:
            rows = [row for row in rows if await policy.can(context, entity.action, row)]
    return {row.id: row for row in rows}

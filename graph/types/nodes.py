"""The queries `node` and `nodes`."""

from collections.abc import Sequence
from typing import Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.errors import LimitExceeded
from graph.fields.connection_pages import MAX_FIRST
from graph.fields.entities import ENTITIES, Node, parse_global_id
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
    lookup_keys_by_type: dict[str, list[Any]] = {}
    keys: list[tuple[str, Any] | None] = []
    for global_id in ids:
        name, key = parse_global_id(global_id) or ("", "")
        lookup_key = None if name not in entities else key if entities[name].load_nodes is not None else parse_id(key)
        keys.append((name, lookup_key) if lookup_key is not None else None)
        if lookup_key is not None:
            lookup_keys_by_type.setdefault(name, []).append(lookup_key)
    found: dict[tuple[str, Any], Any] = {}
    for name, lookup_keys in lookup_keys_by_type.items():
        entity = entities[name]
        if entity.load_nodes is not None:
            found.update({(name, key): node for key, node in (await entity.load_nodes(context, lookup_keys)).items()})
            continue
        rows: Sequence[Any] = [row for row in (await context.rows_by_id(entity.row).get_many(lookup_keys)).values() if row is not None]
        if entity.filter_nodes is not None:
            rows = await entity.filter_nodes(context, rows)
        elif entity.project_key is not None:
            projects = [getattr(row, entity.project_key) for row in rows]
            visible_ids = await policy.filter_visible_projects(context, projects)
            rows = [row for row in rows if getattr(row, entity.project_key) in visible_ids]
        if entity.filter_nodes is None and entity.action is not None:
            rows = [row for row in rows if await policy.can(context, entity.action, row)]
        found.update({(name, row.id): row for row in rows})
    return [found.get(key) if key else None for key in keys]

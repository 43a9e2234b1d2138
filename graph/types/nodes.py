"""`node` and `nodes`."""

from typing import Annotated, Any

import strawberry

from graph.connections import MAXIMUM_SIZE
from graph.context import Context, Info
from graph.declare import ENTITIES, Node, parse_global_id
from graph.errors import LimitExceeded
from graph.rules import policy
from graph.rules.finding import as_id
from storage import tables


@strawberry.type
class NodeQueries:
    @strawberry.field(description="Anything by its id; null where there is no such thing, or the viewer may not see it.")
    async def node(self, info: Info, id: Annotated[strawberry.ID, strawberry.argument(description="The id of a node.")]) -> Node | None:
        (found,) = await _nodes(info.context, [id])
        return found  # type: ignore[no-any-return]

    @strawberry.field(description="Things by their ids, in the asked order, each as `node`; at most 100.")
    async def nodes(
        self, info: Info, ids: Annotated[list[strawberry.ID], strawberry.argument(description="The ids of nodes.")]
    ) -> list[Node | None]:
        if len(ids) > MAXIMUM_SIZE:
            raise LimitExceeded(f"Ask for at most {MAXIMUM_SIZE} nodes at once.")
        return await _nodes(info.context, ids)


async def _nodes(context: Context, ids: list[strawberry.ID]) -> list[Any]:
    """Statements for each kind of node, not for each node."""
    kinds = {entity.name: entity for entity in ENTITIES.values() if entity.is_node}
    wanted: dict[str, list[Any]] = {}
    keys: list[tuple[str, Any] | None] = []
    for text in ids:
        name, key = parse_global_id(text) or ("", "")
        place = None if name not in kinds else key if kinds[name].nodes is not None else as_id(key)
        keys.append((name, place) if place is not None else None)
        if place is not None:
            wanted.setdefault(name, []).append(place)
    found: dict[tuple[str, Any], Any] = {}
    for name, places in wanted.items():
        entity = kinds[name]
        if entity.nodes is not None:
            found.update({(name, key): thing for key, thing in (await entity.nodes(context, places)).items()})
            continue
        if entity.row is tables.Namespace:
            found.update({(name, row.id): row for row in await _groups(context, places)})
            continue
        rows: list[Any] = [row for row in (await context.rows_by_id(entity.row).get_many(places)).values() if row is not None]
        if entity.project_key is not None:
            projects = [getattr(row, entity.project_key) for row in rows]
            seen = await policy.seen_projects(context, projects)
            rows = [row for row in rows if getattr(row, entity.project_key) in seen]
        if entity.action is not None:
            rows = [row for row in rows if await policy.may(context, entity.action, row)]
        found.update({(name, row.id): row for row in rows})
    return [found.get(key) if key else None for key in keys]


async def _groups(context: Context, ids: list[int]) -> list[tables.Namespace]:
    """Those of these groups that the viewer may read: the right is looked up for all of them together."""
    rows = await context.rows_by_id(tables.Namespace).get_many(ids)
    seen = await policy.seen_groups(context, ids)
    return [row for key, row in rows.items() if row is not None and row.kind is tables.NamespaceKind.GROUP and key in seen]

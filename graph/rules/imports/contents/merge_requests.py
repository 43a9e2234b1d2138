"""Merge requests of an import, with the commits and changes that the repositories have.

Git reads them before the transaction: what it finds is compared with what was written last, like the fields of the items.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import Conflict, Invalid, Unavailable, UnreadableRepository, UserError
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.rules import validation
from graph.rules.git import refs
from graph.rules.imports.batches import Batch, ItemResult, UnknownReference, find_targets, write_items
from graph.rules.imports.contents import issuables
from graph.rules.imports.contents.commit_comments import validate_sha
from graph.rules.imports.instance_imports import lock_for_items
from graph.rules.imports.item_kinds import MAX_ITEMS, ImportField, Item, ItemKind, reference
from graph.rules.issues import issue_closing
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.git.refs.imported_branches import BranchHints, ImportedBranch, read_branch
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import NotARepository, Repository
from storage.tables import CounterKind, ImportKind, MergeRequestState, MergeStatus, import_identities
from storage.tables.git import refs as git_refs
from storage.tables.merge_requests import merge_request_branches
from storage.tables.merge_requests.merge_requests import OPEN, is_open
from storage.tables.projects import projects

UNKNOWN_PROJECT_ID = 0
"""`source_project_id` of a merge request from a project that was deleted or not imported."""
MAX_READ_SECONDS = 600.0
"""How long git may read the merge requests of a batch."""
MAX_CONCURRENT_READS = 3
"""Threads that read merge requests of one project; git's programs take most of the time."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class _ReadBranch:
    """What git found of a merge request, when these were the heads of its branches.

    `since` is the version that the refs of the target had before its objects were looked for; 0 if there is nothing of it to lose.
    """

    hints: BranchHints
    found: ImportedBranch
    since: int = 0


async def import_merge_requests(context: Context, import_id: int, items: Sequence[Mapping[str, Any]]) -> list[ItemResult]:
    """Write a batch of merge requests. Raises as `lock_for_items`, and Unavailable for a repository that cannot be read."""
    await require(context, Action.IMPORT_INSTANCE)
    branches = await _read_branches(context, import_id, items[:MAX_ITEMS])
    running = await lock_for_items(context, import_id, items)
    kind = replace(MERGE_REQUESTS, prepare=partial(_prepare, branches=branches), write_related=partial(_write_related, branches=branches))
    return await write_items(context, running, kind, items)


# Reading the repositories


async def _read_branches(context: Context, import_id: int, items: Sequence[Mapping[str, Any]]) -> dict[str, _ReadBranch]:
    """What the repositories have of the items, by source id; those of projects that were not imported are absent."""
    async with context.read_only() as reader:
        source_ids = {str(each) for values in items for each in (values["project_id"], values.get("source_project_id")) if each is not None}
        known = await reader.tuples(import_identities.of_source_ids(import_id, {ImportKind.PROJECT: source_ids}))
        project_ids = {source_id: row_id for _, source_id, row_id, _ in known}
        found = [(values, *_project_ids(values, project_ids)) for values in items]
        keys = {(source, _branch(values, "source_branch")) for values, _, source in found if source}
        keys |= {(target, _branch(values, "target_branch")) for values, target, _ in found if target}
        keys |= {(target, refs.merge_request_head(values["iid"])) for values, target, _ in found if target}
        versions: dict[int, int] = dict(await reader.tuples(git_refs.versions({target for _, target, _ in found if target})))
        heads = await refs.current_of_projects(reader, keys)
    grouped: dict[int, list[tuple[str, int | None, BranchHints]]] = defaultdict(list)
    for values, target, source in found:
        if target is not None:
            source_head = heads.get((source or 0, _branch(values, "source_branch")))
            hints = _make_hints(values, source_head, heads.get((target, _branch(values, "target_branch"))))
            if hints.head is None and not hints.oids:
                # The mirror may have brought the ref by which the source keeps it.
                hints = replace(hints, head=heads.get((target, refs.merge_request_head(values["iid"]))))
            grouped[target].append((str(values["source_id"]), source if source != target else None, hints))
    branches: dict[str, _ReadBranch] = {}
    for target, named in grouped.items():
        read = await _read_project(context, target, named)
        branches |= {key: replace(each, since=versions.get(target, 0)) for key, each in read.items()}
    return branches


def _project_ids(values: Mapping[str, Any], known: Mapping[str, int]) -> tuple[int | None, int | None]:
    """The ids of the target and the source project of an item; None for one that is unknown."""
    target = known.get(str(values["project_id"]))
    if "source_project_id" not in values:
        return target, target
    return target, known.get(str(values["source_project_id"]))


def _branch(values: Mapping[str, Any], name: str) -> str:
    return f"{BRANCHES}{values[name]}" if validation.is_storable(values[name]) else ""


def _make_hints(values: Mapping[str, Any], source_head: str | None, target_head: str | None) -> BranchHints:
    def oid(name: str) -> str | None:
        return _valid_oid(values.get(name))

    oids = [found for each in values.get("commit_oids") or [] if (found := _valid_oid(each)) is not None]
    return BranchHints(
        source_head=source_head,
        target_head=target_head,
        is_open=values["state"] in OPEN,
        is_merged=values["state"] is MergeRequestState.MERGED,
        head=oid("head_oid"),
        base=oid("base_oid"),
        merge=oid("merge_commit_oid"),
        oids=oids,
    )


def _valid_oid(value: str | None) -> str | None:
    try:
        return None if value is None else validate_sha("", value)
    except UserError:
        return None


async def _read_project(context: Context, target: int, named: Iterable[tuple[str, int | None, BranchHints]]) -> dict[str, _ReadBranch]:
    """Read the merge requests into one project, given as (source id, project of a fork, hints). Raises UnreadableRepository."""
    named = list(named)
    repositories = context.services.repositories
    try:
        async with AsyncExitStack() as stack:
            forks: dict[int, Path] = {}
            for fork in sorted({fork for _, fork, _ in named if fork is not None}):
                forks[fork] = await stack.enter_async_context(repositories.use(fork))
            hints_by_key = {key: replace(hints, source=forks.get(fork) if fork is not None else None) for key, fork, hints in named}
            parts = [
                dict(part) for start in range(MAX_CONCURRENT_READS) if (part := list(hints_by_key.items())[start::MAX_CONCURRENT_READS])
            ]
            found = await asyncio.gather(*(repositories.read(target, partial(_read_all, part)) for part in parts))
        if forks:
            await refs.publish_objects(context.services, target)
        return {key: read for part in found for key, read in part.items()}
    except NotARepository:
        return {key: _ReadBranch(hints, ImportedBranch(merge=hints.merge)) for key, _, hints in named}
    except OSError as error:
        log.warning("repository cannot be read", project_id=target, error=str(error))
        raise UnreadableRepository from error


def _read_all(hints_by_key: Mapping[str, BranchHints], repository: Repository) -> dict[str, _ReadBranch]:
    return {key: _ReadBranch(hints, read_branch(repository, hints)) for key, hints in hints_by_key.items()}


# The transaction


async def _prepare(batch: Batch, branches: Mapping[str, _ReadBranch]) -> None:
    context, items = batch.context, batch.open_items
    # The heads stay as they are until the end of the transaction.
    locked = await context.all(projects.all_for_update({item.columns["project_id"] for item in items}))
    await _require_objects(context, locked, items, branches)
    await issuables.prepare(batch, MergeRequestState.CLOSED)
    await _find_source_projects(batch)
    for item in items:
        columns, read = item.columns, branches.get(item.key)
        is_merged, is_open = columns["state"] is MergeRequestState.MERGED, columns["state"] in OPEN
        columns["merged_at"] = (columns["merged_at"] or columns["updated_at"]) if is_merged else None
        found = read.found if read is not None else ImportedBranch()
        columns |= {"head_oid": found.head, "base_oid": found.base, "commit_count": found.count, "merge_commit_oid": None}
        columns |= {name: getattr(found.stat, name) if found.stat is not None else None for name in ("files", "additions", "deletions")}
        if is_merged:
            columns["merge_commit_oid"] = found.merge
            columns["merge_status"] = item.values.get("merge_status") or MergeStatus.CAN_BE_MERGED
        elif is_open:
            columns["merge_status"] = MergeStatus.CAN_BE_MERGED if found.mergeable else MergeStatus.CANNOT_BE_MERGED
        item.extras["commits"] = found.oids
        if item.values.get("merge_when_build_succeeds") and is_open:
            item.errors.append(Invalid("mergeWhenBuildSucceeds", "is not carried over: merge it by hand, or request it again"))
        if not is_merged:
            columns["merge_user_id"] = None
    await _mark_moved(batch, branches)


async def _require_objects(
    context: Context, locked: Sequence[tables.Project], items: Sequence[Item], branches: Mapping[str, _ReadBranch]
) -> None:
    """Raises Unavailable if a collection may have deleted objects that git has found: the source names commits that nothing reaches."""
    read = {(item.columns["project_id"], branches[item.key].since) for item in items if item.key in branches and branches[item.key].since}
    if await refs.find_outdated(context, read, {project.id: project.refs_version for project in locked}):
        raise Unavailable(refs.OBJECTS_DELETED)


async def _find_source_projects(batch: Batch) -> None:
    named = {str(each) for item in batch.open_items if (each := item.values.get("source_project_id")) is not None}
    found = await find_targets(batch, ImportKind.PROJECT, named) if named else {}
    for item in batch.open_items:
        source_id = item.values.get("source_project_id", item.values["project_id"])
        row_id = item.columns["project_id"] if source_id == item.values["project_id"] else found.get(str(source_id))
        if row_id is None and source_id is not None:
            item.errors.append(UnknownReference("sourceProjectId", f"{source_id} was not imported"))
        item.columns["source_project_id"] = UNKNOWN_PROJECT_ID if row_id is None else row_id


async def _mark_moved(batch: Batch, branches: Mapping[str, _ReadBranch]) -> None:
    """Leave the comparison of an open one whose branches moved after git read them to the maintenance job."""
    items = [item for item in batch.open_items if item.columns["state"] in OPEN and item.key in branches]
    keys = {
        item.key: tuple(
            (item.columns[project], BRANCHES + item.columns[branch])
            for project, branch in (("source_project_id", "source_branch"), ("project_id", "target_branch"))
        )
        for item in items
    }
    current = await refs.current_of_projects(batch.context, {key for both in keys.values() for key in both})
    for item in items:
        hints = branches[item.key].hints
        if tuple(map(current.get, keys[item.key])) != (hints.source_head, hints.target_head):
            item.columns["merge_status"] = MergeStatus.UNCHECKED
            batch.context.wake_maintenance(MaintenanceWork.MERGE_REQUESTS)


async def _check_open(batch: Batch) -> None:
    """Skip open ones between whose branches another one is open."""
    items = [item for item in batch.open_items if item.columns["state"] in OPEN]
    if not items:
        return
    row: Any = tables.MergeRequest
    names = ("project_id", "target_branch", "source_project_id", "source_branch")
    among = [col(getattr(row, name)).in_({item.columns[name] for item in items}) for name in names]
    statement = select(row.id, *(getattr(row, name) for name in names)).where(is_open(), *among)
    owners: dict[Any, Any] = {tuple(values): row_id for row_id, *values in await batch.context.tuples(statement)}
    for item in items:
        if owners.setdefault(tuple(item.columns[name] for name in names), item.key) not in (item.key, item.row_id):
            item.skip(Conflict("sourceBranch", "Another merge request between these branches is open."))


async def _write_related(batch: Batch, branches: Mapping[str, _ReadBranch]) -> None:
    await issuables.write_related(batch, CounterKind.MERGE_REQUEST)
    context, items = batch.context, batch.written_items
    if not items:
        return
    await context.session.execute(merge_request_branches.delete_commits([item.row_id or 0 for item in items]))
    rows = [
        {"merge_request_id": item.row_id, "position": position, "oid": oid}
        for item in items
        for position, oid in enumerate(item.extras["commits"])
    ]
    if rows:
        await context.session.execute(merge_request_branches.insert_commits(), rows)
    messages = [(_as_row(item), branches[item.key].found.messages) for item in items if item.key in branches]
    await issue_closing.record_closings(context, messages)
    existing = [item for item in items if item.columns["commit_count"] is not None]
    await refs.upsert_merge_request_heads(
        context, {(item.columns["project_id"], item.columns["iid"]): item.columns["head_oid"] for item in existing}
    )


def _as_row(item: Item) -> tables.MergeRequest:
    """What the recording of closed issues reads of the row."""
    return tables.MergeRequest.new(id=item.row_id, project_id=item.columns["project_id"], description=item.columns["description"])


MERGE_REQUESTS = ItemKind(
    ImportKind.MERGE_REQUEST,
    tables.MergeRequest,
    {
        **issuables.ISSUABLE_FIELDS,
        "source_branch": ImportField(validate=validation.validate_title, is_required=True),
        "target_branch": ImportField(validate=validation.validate_title, is_required=True),
        "merge_status": ImportField(default=MergeStatus.UNCHECKED),
        "merge_user_id": reference(ImportKind.USER, is_required=False),
        "merged_at": ImportField(),
    },
    unique=(issuables.UNIQUE_IID,),
    match=_check_open,
)

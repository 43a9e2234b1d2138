"""Runners: who they are, which build each is given next, and what becomes of a build whose runner is lost.

A runner takes the oldest build of those that it may take: a shared one of every project, another of the projects that it serves; all tags
of the build must be among the runner's. Builds of a project whose builds are switched off, or that is archived, are taken out of their
queues, and put back when they are on again, so that nobody who looks for a build has to step over them.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from graph.caller import staying
from graph.context import Context, Machine, Services
from graph.errors import Forbidden, Invalid, NotAllowed, NotFound
from graph.rules import builds, finding, machines, naming, traces
from graph.rules.ci.coverage import coverage_of
from graph.rules.objects import erase_with_builds
from graph.rules.policy import Action, may, require, seen_projects
from graph.transaction import keep, session_for
from storage import tables
from storage.secrets import digest
from storage.tables import CheckStatus, changes, runners
from storage.tables.commit_statuses import FINISHED

LONGEST_WAIT = 20
"""Seconds that a runner may wait in the line for a build."""
MOST_TAGS = 50
MOST_PROJECTS = 100
TRIES = 20
"""How many builds one call tries to take that another one took first, or whose project has no builds any more."""
CONTACT_KEPT = timedelta(minutes=1)
MOST_STARTS = 3
"""How often a build is given back; the next time it has failed."""
GRACE = timedelta(minutes=1)
"""How much longer than its time a build may run before it is failed without its runner, which should have stopped it."""
AT_ONCE = 100
LOST = "The runner was lost; the build was started again.\n"
GIVEN_BACK = "The runner gave the build back; it was started again.\n"

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class About:
    """What a runner says of itself; None where it does not."""

    name: str | None = None
    version: str | None = None
    revision: str | None = None
    platform: str | None = None
    architecture: str | None = None

    def columns(self) -> dict[str, str | None]:
        said = {field: getattr(self, field) for field in self.__slots__}
        return {field: naming.clean(field, text.strip())[: naming.LONGEST_NAME] for field, text in said.items() if text is not None}


# Who they are


async def create(
    context: Context, description: str, *, tags: Collection[str], run_untagged: bool, active: bool, project: tables.Project | None
) -> tuple[tables.Runner, str]:
    """A new runner and its token, which nobody can show again. Without a project it serves all. Raises Invalid, Required."""
    token = machines.new_runner_token()
    viewer = context.viewer_or_none
    runner = await context.add(
        tables.Runner(
            description=checked_description(description),
            token_digest=digest(token),
            active=active,
            shared=project is None,
            tags=checked_tags(tags),
            run_untagged=run_untagged,
            creator_id=viewer.id if viewer is not None and viewer.id else None,
            created_at=context.now(),
            updated_at=context.now(),
        )
    )
    require_some_use(runner)
    if project is not None:
        context.session.add(tables.RunnerProject(runner_id=runner.id, project_id=project.id))
        await context.session.flush()
    return runner, token


def require_one_kind(of_project: bool, shared: bool) -> None:
    """Raises Invalid for a runner that is to serve one project and every project, or none."""
    if of_project == shared:
        raise Invalid("projectPath", "is needed for a runner that is not shared, and for no other")


def checked_description(text: str) -> str:
    """Raises Required, Invalid."""
    return naming.title("description", text)


def checked_tags(tags: Collection[str]) -> list[str]:
    """Sorted, each once. Raises Invalid."""
    found = sorted({naming.clean("tags", tag.strip(), longest=naming.LONGEST_NAME) for tag in tags} - {""})
    if len(found) > MOST_TAGS or any("," in tag for tag in found):
        raise Invalid("tags", f"may be {MOST_TAGS} at most, without commas")
    return found


def require_some_use(runner: tables.Runner) -> None:
    if not runner.tags and not runner.run_untagged:
        raise Invalid("tags", "can't be empty where builds without tags are not run")


async def find(context: Context, runner_id: int) -> tables.Runner:
    """A runner that the viewer may change: an administrator, or a master of all projects that it serves. Raises NotFound, Forbidden."""
    runner = await context.first(runners.held(runner_id))
    if runner is None:
        raise NotFound("Runner")
    if context.viewer.admin:
        return runner
    if runner.shared:
        # Everybody who sees their builds knows them.
        raise Forbidden
    served = await served_projects(context, runner)
    mine = [project for project in served if await may(context, Action.ADMIN_RUNNER, project)]
    if not mine:
        raise NotFound("Runner")
    if len(mine) < len(served):
        raise Forbidden("The runner serves projects of others too.")
    return runner


async def nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """The runners of these ids that a list shows to the viewer, by their keys: all to administrators, and those of a project to its
    masters."""
    ids = {number: key for key in keys if (number := finding.as_id(key)) is not None}
    rows = {number: row for number, row in (await context.rows_by_id(tables.Runner).get_many(ids)).items() if row is not None}
    if not await may(context, Action.ADMIN_RUNNERS):
        served = [(key, project_id) for key, project_id in await context.tuples(runners.projects_of(list(rows)))]
        seen = await seen_projects(context, [project_id for _, project_id in served])
        projects = await context.rows_by_id(tables.Project).get_many(seen)
        mine = {key for key, project in projects.items() if await may(context, Action.ADMIN_RUNNER, project)}
        rows = {number: row for number, row in rows.items() if any((number, key) in served for key in mine)}
    return {ids[number]: row for number, row in rows.items()}


async def served_projects(context: Context, runner: tables.Runner) -> list[tables.Project]:
    ids = [project_id for _, project_id in await context.tuples(runners.projects_of([runner.id]))]
    rows = await context.rows_by_id(tables.Project).get_many(ids)
    return [row for row in rows.values() if row is not None]


async def serve(context: Context, runner: tables.Runner, paths: list[str]) -> None:
    """Has a runner serve these projects, of which the viewer must be a master, and no others. Raises Forbidden, NotFound, Invalid."""
    if runner.shared:
        raise Invalid("projectPaths", "can't be given for a runner that serves every project")
    if not 0 < len(paths) <= MOST_PROJECTS:
        raise Invalid("projectPaths", f"must be 1 to {MOST_PROJECTS}")
    wanted = set()
    for path in paths:
        project = await finding.project(context, path)
        await require(context, Action.ADMIN_RUNNER, project)
        wanted.add(project.id)
    await context.session.execute(runners.serves_nothing(runner.id))
    context.session.add_all([tables.RunnerProject(runner_id=runner.id, project_id=key) for key in sorted(wanted)])
    await context.session.flush()


async def delete(context: Context, runner: tables.Runner) -> None:
    """Forgets a runner; what it has is given back."""
    for build_id in [key for (key,) in await context.tuples(runners.running_at(runner.id))]:
        build = await builds.hold(context, build_id)
        if build.status is CheckStatus.RUNNING:
            await give_back(context, build, LOST)
    await context.session.delete(runner)
    await context.session.flush()
    context.loaders.clear()


# What they are given


def queue_of(tags: Collection[str]) -> str:
    """The queue of a build that needs these tags; every build that a runner may take stands in one."""
    return ",".join(sorted(set(tags)))


def fits(queue: str, runner: tables.Runner) -> bool:
    """Whether a runner may take the builds of a queue."""
    return set(queue.split(",")) <= set(runner.tags) if queue else runner.run_untagged


async def claim(context: Context, machine: Machine, about: About, seconds: float) -> tuple[tables.Build, str] | None:
    """Gives the runner the oldest build that it may take, with the token of the build; waits so long for one at most.

    Raises Forbidden for the token of a build.
    """
    if machine.build is not None:
        raise Forbidden("A build's token takes no other build.")
    line, loop = context.services.line, asyncio.get_running_loop()
    said = about.columns()
    until = loop.time() + max(0.0, min(seconds, LONGEST_WAIT))
    found: tuple[tables.Build, str] | None = None
    async with staying() as gone:
        # A build that is given to one who has hung up would wait for the end of its lease.
        while machine.runner.active and not gone():
            rings = line.rings
            async with line.turn:
                found = await _take(context, machine.runner)
            left = until - loop.time()
            if found is not None or left <= 0 or not line.may_wait():
                break
            await line.rung(rings, left)
    await _contact(context, machine.runner, said)
    return found


async def _take(context: Context, runner: tables.Runner) -> tuple[tables.Build, str] | None:
    """The next build, given to the runner. What a try without success held is let go of."""
    line = context.services.line
    for _ in range(TRIES):
        place = await _look(context, runner)
        if place is None:
            return None
        queue, project_id = place
        build: tables.Build | None = await context.session.scalar(runners.next_of(queue, project_id))
        if build is None:
            line.taken(queue, await context.value(runners.oldest_id(queue)))
            await context.session.close()
            continue
        project = await context.session.get(tables.Project, build.project_id)
        if not has_builds(project):
            # It came into the queue while that was changed.
            build.queue = None
            await context.session.flush()
            line.taken(queue, await context.value(runners.oldest_id(queue)))
            continue
        taken = await builds.change(context, build, CheckStatus.RUNNING)
        if taken is None:
            continue
        token = machines.new_build_token(taken.id)
        taken.runner_id, taken.token_digest = runner.id, digest(token)
        taken.sealed_token = context.services.cipher.encrypt(token)
        taken.lease_until = context.now() + timedelta(seconds=context.services.build_lease)
        await context.session.flush()
        line.taken(queue, await context.value(runners.oldest_id(queue)))
        return taken, token
    return None


async def _look(context: Context, runner: tables.Runner) -> tuple[str, int | None] | None:
    """The queue, and for a runner that is not shared the project, with the oldest build that it may take."""

    async def look() -> Mapping[str, int]:
        async with context.aside() as aside:
            return dict(map(tuple, await aside.tuples(runners.oldest_of_queues())))

    queues = await context.services.line.queues(look)
    fitting = {queue: oldest for queue, oldest in queues.items() if fits(queue, runner)}
    if not fitting:
        return None
    if runner.shared:
        return min(fitting, key=lambda queue: fitting[queue]), None
    async with context.aside() as aside:
        own = [tuple(row) for row in await aside.tuples(runners.oldest_of_own_queues(runner.id))]
    found = min(((oldest, queue, project_id) for queue, project_id, oldest in own if fits(queue, runner)), default=None)
    return (found[1], found[2]) if found is not None else None


def has_builds(project: tables.Project | None) -> bool:
    return project is not None and project.builds_enabled and not project.archived


async def _contact(context: Context, runner: tables.Runner, said: dict[str, str | None]) -> None:
    """Keeps when the runner called, to the minute, and what it says of itself."""
    news = {field: text for field, text in said.items() if text != getattr(runner, field)}
    if news or runner.contacted_at is None or context.now() - runner.contacted_at >= CONTACT_KEPT:
        await context.session.execute(runners.contacted(runner.id, context.now(), news))


async def switched(context: Context, project: tables.Project, had: bool) -> None:
    """What follows when a project's builds were switched on or off, or it was archived or taken back. `had`: whether it had builds."""
    has = has_builds(project)
    if has == had:
        return
    if not has:
        await context.session.execute(runners.out_of_queue(project.id))
        return
    queues: dict[str, list[int]] = {}
    for build_id, tags in await context.tuples(runners.unfinished_of(project.id)):
        queues.setdefault(queue_of(tags), []).append(build_id)
    for queue, ids in queues.items():
        for start in range(0, len(ids), AT_ONCE):
            await context.session.execute(runners.into_queue(queue, ids[start : start + AT_ONCE]))
    context.after_commit.append(context.services.line.ring)


# What they say of builds


async def report(context: Context, machine: Machine, build_id: int | None, status: CheckStatus | None) -> tables.Build:
    """What a runner says of a build that it has: that it goes on (None, RUNNING), how it ended, or, by PENDING, that it gives it back.

    To say again how it ended changes nothing. Raises NotFound, Conflict for a build that it has no more, NotAllowed.
    """
    async with context.aside() as early:
        row = await early.first(runners.build(build_id)) if build_id is not None and 0 < build_id <= machines.MOST_ID else None
        if row is not None and status in FINISHED and row.status is status and machine.had(row):
            return row
        row = await machines.build_of(early, machine, build_id)
        covered = None
        if status in FINISHED and row.options.get("coverage"):
            printed = "\n".join(await traces.tail(early, row, traces.MOST_LINES))
            # In a thread: the expression is a user's, and a trace may keep it busy for as long as it is given.
            covered = await asyncio.to_thread(coverage_of, dict(row.options), printed)
    if status is None or status is CheckStatus.RUNNING:
        return row
    if status is CheckStatus.CANCELED:
        raise NotAllowed("status", "A runner does not cancel builds.")
    held = await builds.hold(context, row.id)
    if not machine.has(held):
        raise machines.gone(held)
    if status is CheckStatus.PENDING:
        await give_back(context, held, GIVEN_BACK)
        return held
    done = await builds.change(context, held, status)
    if done is None:
        raise machines.gone(held)
    if covered is not None:
        done.coverage = covered
    return done


async def give_back(context: Context, build: tables.Build, why: str) -> None:
    """Has a running build, which is held, wait for another runner, as the same attempt; after some times it has failed."""
    starts = 0
    for was, became in await context.tuples(changes.of_build(build.id, 2 * MOST_STARTS + 1)):
        if became == CheckStatus.PENDING:
            if was != CheckStatus.RUNNING:
                break
            starts += 1
    if starts >= MOST_STARTS:
        await builds.change(context, build, CheckStatus.FAILED)
        return
    await erase_with_builds(context, [build.id])
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(runners.forget_left(table, build.id))
    build.trace_size = 0
    build.sealed_trace_end = None
    await context.session.flush()
    await traces.append(context, build, why, 0)
    was, build.status = build.status, CheckStatus.PENDING
    build.started_at = build.runner_id = build.token_digest = build.sealed_token = build.lease_until = None
    project = await context.rows_by_id(tables.Project).get(build.project_id)
    build.queue = queue_of(build.tags) if has_builds(project) else None
    await builds.after_change(context, build, was)


async def look_after(services: Services) -> None:
    """A chore: gives back the builds whose runner is lost, and fails those that run far beyond their time."""
    moment = services.clock()
    async with session_for(services.database, writing=False) as session:
        lost = [key for (key,) in await session.read(runners.lost(moment, AT_ONCE))]
        at_work = [build for (build,) in await session.read(runners.at_work(moment - GRACE))]
    late = [build.id for build in at_work if _is_late(services, build)]
    for build_id in dict.fromkeys([*late, *lost]):
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "upkeep")
            await _look_after(context, build_id)
            await keep(context)


async def _look_after(context: Context, build_id: int) -> None:
    try:
        build = await builds.hold(context, build_id)
    except NotFound:
        return
    if build.status is not CheckStatus.RUNNING or build.lease_until is None:
        return
    if _is_late(context.services, build):
        log.warning("build ended beyond its time", build_id=build.id, runner_id=build.runner_id)
        await traces.append(context, build, "\nThe build ran longer than it may, and its runner did not stop it.\n", build.trace_size)
        await builds.change(context, build, CheckStatus.FAILED)
    elif build.lease_until < context.now():
        log.warning("runner lost", build_id=build.id, runner_id=build.runner_id)
        await give_back(context, build, LOST)


def _is_late(services: Services, build: tables.Build) -> bool:
    return build.started_at is not None and services.clock() - build.started_at > timedelta(seconds=timeout_of(services, build)) + GRACE


def timeout_of(services: Services, build: tables.Build) -> int:
    """Seconds that a build may run."""
    given: Any = build.options.get("timeout")
    return given if isinstance(given, int) and given > 0 else services.build_timeout

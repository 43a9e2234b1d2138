"""Administration of runners: creation, changes, deletion, and who may do it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from graph.context import Context
from graph.errors import Forbidden, Invalid, NotFound, Taken
from graph.operations.token_scopes import may_see_writing_tokens
from graph.rules import lookup, validation
from graph.rules.builds import builds
from graph.rules.permissions.policy import Action, can, filter_visible_projects, require
from graph.rules.runners import runner_tokens
from graph.rules.runners.status_reports import LOST_MESSAGE, return_to_queue
from storage import tables
from storage.secrets import digest_token
from storage.tables import CheckStatus
from storage.tables.builds import runners

ONLINE_TIME = timedelta(minutes=5)
"""How long after its last call a runner counts as online."""
SERVED_PROJECTS_LOADER = "projects of runners"
"""Key of the loader in `Context.loaders`."""
NO_ACCESS = "No access granted"
MAX_TAGS = 50
MAX_PROJECTS = 100


class RunnerScope(StrEnum):
    """Kinds of runners to list."""

    ACTIVE = "active"
    PAUSED = "paused"
    ONLINE = "online"
    SPECIFIC = "specific"
    SHARED = "shared"


async def create_runner(
    context: Context, description: str, *, tags: Collection[str], run_untagged: bool, active: bool, project: tables.Project | None
) -> tuple[tables.Runner, str]:
    """Create a runner; returns it and its token.

    Without a project it serves all projects. Raises Invalid, Required.
    """
    token = runner_tokens.generate_runner_token()
    viewer = context.viewer_or_none
    runner = await context.add(
        tables.Runner(
            description=validate_description(description),
            token_digest=digest_token(token),
            sealed_token=context.services.cipher.encrypt(token),
            active=active,
            shared=project is None,
            tags=validate_tags(tags),
            run_untagged=run_untagged,
            creator_id=viewer.id if viewer is not None and viewer.id else None,
            created_at=context.now(),
            updated_at=context.now(),
        )
    )
    require_usable(runner)
    if project is not None:
        context.session.add(tables.RunnerProject(runner_id=runner.id, project_id=project.id))
        await context.session.flush()
    return runner, token


async def update_runner(context: Context, runner: tables.Runner, values: Mapping[str, Any]) -> tables.Runner:
    """Change a locked runner by the values of `UpdateRunnerInput` that were sent. Raises Required, Invalid, NotFound, Forbidden."""
    if values.get("description") is not None:
        runner.description = validate_description(values["description"])
    if "tags" in values:
        runner.tags = validate_tags(values["tags"] or [])
    if values.get("run_untagged") is not None:
        runner.run_untagged = values["run_untagged"]
    if values.get("active") is not None:
        runner.active = values["active"]
    if values.get("project_paths") is not None:
        await set_served_projects(context, runner, values["project_paths"])
    require_usable(runner)
    runner.updated_at = context.now()
    context.on_commit.append(context.services.runner_queue.notify)
    return runner


async def delete_runner(context: Context, runner: tables.Runner) -> tables.Runner:
    """Delete a runner; its running builds are returned to their queues.

    Raises Forbidden if it serves several projects and the viewer is no administrator.
    """
    viewer = context.viewer_or_none
    if viewer is not None and not viewer.admin and len(await load_served_projects(context, runner)) > 1:
        raise Forbidden("Runner associated with more than one project")
    for build_id in [key for (key,) in await context.tuples(runners.running_on(runner.id))]:
        build = await builds.lock_build(context, build_id)
        if build.status is CheckStatus.RUNNING:
            await return_to_queue(context, build, LOST_MESSAGE)
    await context.delete(runner)
    return runner


def require_one_kind(has_project: bool, shared: bool) -> None:
    """Raises Invalid unless the runner is either shared or has a project."""
    if has_project == shared:
        raise Invalid("projectPath", "is required unless the runner is shared, and not allowed if it is")


def validate_description(value: str) -> str:
    """The description of a runner. Raises Required, Invalid."""
    return validation.validate_title("description", value)


def validate_tags(tags: Collection[str]) -> list[str]:
    """Sort the tags and remove duplicates. Raises Invalid."""
    found = sorted({validation.validate_string("tags", tag.strip(), max_length=validation.MAX_NAME_LENGTH) for tag in tags} - {""})
    if len(found) > MAX_TAGS or any("," in tag for tag in found):
        raise Invalid("tags", f"can have at most {MAX_TAGS} entries, without commas")
    return found


def require_usable(runner: tables.Runner) -> None:
    """Raises Invalid for a runner that could never run a build."""
    if not runner.tags and not runner.run_untagged:
        raise Invalid("tags", "can't be empty unless the runner runs untagged builds")


async def lock_administered_runner(context: Context, runner_id: int) -> tables.Runner:
    """The locked runner, which the viewer may change. Raises NotFound, Forbidden.

    That a runner exists is no secret, since ids are counted.

    Administrators may change every runner; masters of all projects that a runner serves may change it.
    """
    runner = await context.first(runners.for_update(runner_id))
    if runner is None:
        raise NotFound("Runner")
    await _require_administration(context, runner)
    return runner


async def _require_administration(context: Context, runner: tables.Runner) -> None:
    """Raises Forbidden unless the viewer may change the runner."""
    if context.viewer.admin:
        return
    if runner.shared:
        raise Forbidden("Runner is shared")
    served = await load_served_projects(context, runner)
    administered = [project for project in served if await can(context, Action.ADMIN_RUNNER, project)]
    if not administered:
        raise Forbidden(NO_ACCESS)
    if len(administered) < len(served):
        raise Forbidden("The runner also serves projects that you do not administer.")


async def load_abilities(context: Context, runner: tables.Runner) -> dict[str, bool]:
    """Whether the viewer may `update`, `delete` and `unassign` a runner, as the rules of these mutations decide it."""
    try:
        await _require_administration(context, runner)
    except Forbidden:
        may_update = False
    else:
        may_update = True
    served = await load_served_projects(context, runner)
    return {
        "update": may_update,
        "delete": may_update and (context.viewer.admin or len(served) == 1),
        "unassign": len(served) > 1 and any([await can(context, Action.ADMIN_RUNNER, project) for project in served]),
    }


async def get_runner(context: Context, runner_id: int) -> tables.Runner:
    """A runner: a shared one for everybody, another one for administrators and masters of a project that it serves.

    Raises NotFound, Forbidden.
    """
    runner = await context.rows_by_id(tables.Runner).get(runner_id)
    if runner is None:
        raise NotFound("Runner")
    if not runner.shared and not context.viewer.admin:
        await _require_access(context, runner)
    return runner


async def _require_access(context: Context, runner: tables.Runner) -> None:
    """Raises Forbidden unless the viewer is a master of a project that the runner serves."""
    if not any([await can(context, Action.ADMIN_RUNNER, project) for project in await load_served_projects(context, runner)]):
        raise Forbidden(NO_ACCESS)


async def assign_runner(context: Context, project: tables.Project, runner_id: int) -> tables.Runner:
    """Let a runner serve a project too, for masters of a project that it serves already.

    Raises NotFound, Forbidden for a shared one, Taken if it serves the project already.
    """
    runner = await context.first(runners.for_update(runner_id))
    if runner is None:
        raise NotFound("Runner")
    if runner.shared:
        raise Forbidden("Runner is shared")
    if not context.viewer.admin:
        await _require_access(context, runner)
    served = [project_id for _, project_id in await context.tuples(runners.projects_of([runner.id]))]
    if project.id in served:
        raise Taken("runnerId")
    if len(served) >= MAX_PROJECTS:
        raise Invalid("runnerId", f"serves {MAX_PROJECTS} projects already")
    context.session.add(tables.RunnerProject(runner_id=runner.id, project_id=project.id))
    await context.session.flush()
    context.loaders.pop(SERVED_PROJECTS_LOADER, None)
    context.on_commit.append(context.services.runner_queue.notify)
    return runner


async def unassign_runner(context: Context, project: tables.Project, runner_id: int) -> tables.Runner:
    """Take a runner away from a project; builds that it runs go on. Raises NotFound, Forbidden for its last project."""
    runner = await context.first(runners.for_update(runner_id))
    served = [project_id for _, project_id in await context.tuples(runners.projects_of([runner_id]))] if runner is not None else []
    if runner is None or project.id not in served:
        raise NotFound("Runner")
    if len(served) == 1:
        raise Forbidden("Only one project associated with the runner. Please remove the runner instead")
    await context.session.execute(runners.delete_project(runner.id, project.id))
    return runner


async def load_token(context: Context, runner: tables.Runner) -> str | None:
    """The token of a runner, for administrators and those who are masters of all projects that it serves; else None.

    None too for an access token without the scope WRITE, for a runner that was created before its token was stored, and if the key is lost.
    """
    if not may_see_writing_tokens(context.access_token):
        return None
    if not context.viewer.admin:
        served = await load_served_projects(context, runner)
        if not served or not all([await can(context, Action.ADMIN_RUNNER, project) for project in served]):
            return None
    return context.services.cipher.try_decrypt(runner.sealed_token)


def scope_conditions(context: Context, scope: RunnerScope | None) -> list[Any]:
    """SQL conditions on `Runner` for a scope."""
    runner: Any = tables.Runner
    return {
        None: [],
        RunnerScope.ACTIVE: [runner.active.is_(True)],
        RunnerScope.PAUSED: [runner.active.is_(False)],
        RunnerScope.ONLINE: [runners.has_contacted_since(context.now() - ONLINE_TIME)],
        RunnerScope.SPECIFIC: [runner.shared.is_(False)],
        RunnerScope.SHARED: [runner.shared.is_(True)],
    }[scope]


async def filter_administered(context: Context, rows: Sequence[tables.Runner]) -> Sequence[tables.Runner]:
    """All runners for administrators, those of a project for its masters."""
    if await can(context, Action.ADMIN_RUNNERS):
        return rows
    served = [(key, project_id) for key, project_id in await context.tuples(runners.projects_of([row.id for row in rows]))]
    visible_ids = await filter_visible_projects(context, [project_id for _, project_id in served])
    projects = await context.rows_by_id(tables.Project).get_many(visible_ids)
    administered_ids = {key for key, project in projects.items() if await can(context, Action.ADMIN_RUNNER, project)}
    return [row for row in rows if any((row.id, key) in served for key in administered_ids)]


async def load_served_projects(context: Context, runner: tables.Runner) -> list[tables.Project]:
    """The projects that a runner serves; none for a shared runner."""
    ids = await served_project_loader(context).get(runner.id) or []
    rows = await context.rows_by_id(tables.Project).get_many(ids)
    return [row for row in rows.values() if row is not None]


def served_project_loader(context: Context) -> Any:
    """The loader of the ids of projects that a runner serves, by the runner's id."""

    async def fetch(ids: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for runner_id, project_id in await context.tuples(runners.projects_of(ids)):
            found.setdefault(runner_id, []).append(project_id)
        return found

    return context.loader(SERVED_PROJECTS_LOADER, fetch)


async def set_served_projects(context: Context, runner: tables.Runner, paths: list[str]) -> None:
    """Replace the projects that a runner serves; the viewer must be a master of each.

    Raises Forbidden, NotFound, Invalid.
    """
    if runner.shared:
        raise Invalid("projectPaths", "can't be given for a shared runner")
    if not 0 < len(paths) <= MAX_PROJECTS:
        raise Invalid("projectPaths", f"must have 1 to {MAX_PROJECTS} entries")
    project_ids = set()
    for path in paths:
        project = await lookup.get_project(context, path)
        await require(context, Action.ADMIN_RUNNER, project)
        project_ids.add(project.id)
    await context.session.execute(runners.delete_projects(runner.id))
    context.session.add_all([tables.RunnerProject(runner_id=runner.id, project_id=key) for key in sorted(project_ids)])
    await context.session.flush()
    context.loaders.pop(SERVED_PROJECTS_LOADER, None)

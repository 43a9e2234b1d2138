"""Triggers: other systems have builds made with a token as their only credential (docs/wire-facts.md 13.1)."""

import hmac
import secrets
from collections.abc import Sequence
from functools import partial

import orjson

from graph.context import Context
from graph.errors import Invalid, NotAllowed, NotFound, Unauthenticated
from graph.events.payloads import full_path
from graph.rules import lookup
from graph.rules.builds import variables
from graph.rules.ci import pipeline_planner, pipelines
from graph.rules.ci.pipeline_planner import PipelinePlan
from graph.rules.permissions.project_access import PROJECTS_LOADER, load_projects
from graph.rules.projects import projects
from graph.rules.runners.build_queues import has_builds
from storage import tables
from storage.git.refs.ref_names import BRANCHES, TAGS
from storage.secrets import digest_token
from storage.tables.base import lock
from storage.tables.builds import triggers
from storage.tables.git import refs

MAX_TRIGGERS = 100
"""Triggers of one project."""
TOKEN_BYTES = 15
NO_BUILDS = "No builds created"


async def create_trigger(context: Context, project: tables.Project) -> tables.Trigger:
    """Add a trigger with a new token. Raises Invalid if the project has too many."""
    await context.value(lock(tables.Project, project.id))
    if (await context.value(triggers.count_of(project.id)) or 0) >= MAX_TRIGGERS:
        raise Invalid("projectPath", f"can have {MAX_TRIGGERS} triggers")
    token, moment = secrets.token_hex(TOKEN_BYTES), context.now()
    sealed = context.services.cipher.encrypt(token)
    row = tables.Trigger(project_id=project.id, token_digest=digest_token(token), sealed_token=sealed, created_at=moment, updated_at=moment)
    return context.add_deferred(row)


async def find_trigger(context: Context, project: tables.Project, token: str) -> tables.Trigger | None:
    """The trigger of the project with this token."""
    found = await _find_by_token(context, token)
    return found if found is not None and found.project_id == project.id else None


async def get_trigger(context: Context, project: tables.Project, token: str) -> tables.Trigger:
    """As `find_trigger`. Raises NotFound."""
    found = await find_trigger(context, project, token)
    if found is None:
        raise NotFound("Trigger")
    return found


async def delete_trigger(context: Context, trigger: tables.Trigger) -> tables.Trigger:
    """Delete the trigger; its token becomes invalid, the builds that it created remain."""
    await context.delete(trigger)
    return trigger


def decrypt_token(context: Context, trigger: tables.Trigger) -> str | None:
    """The token; None if the key with which it was encrypted is lost."""
    return context.services.cipher.try_decrypt(trigger.sealed_token)


async def trigger_builds(
    context: Context, path: str, token: str, ref: str, requested: Sequence[tuple[str, str]] | None
) -> tables.TriggerRequest:
    """Create builds of a branch or tag for the caller with this token; they receive the variables that are `requested`.

    The file is read before the transaction begins. Raises NotFound for an unknown project or token, Unauthenticated for the token of
    another project, Invalid, NotAllowed if there is nothing to build.
    """
    async with context.read_only() as reader:
        project, trigger = await _authenticate(reader, path, token)
        _validate_variables(requested or ())
        plan = await _plan(reader, project, ref)
    if plan is None:
        raise NotAllowed("ref", NO_BUILDS)
    # Builds may have been disabled while the file was read: no runner would take them from the queues.
    project = await projects.lock_project(context, project)
    if not has_builds(project):
        raise NotAllowed("ref", NO_BUILDS)
    locked = await context.first(triggers.for_update(trigger.id))
    if locked is None:
        raise NotFound("Trigger")
    locked.last_used_at = context.now()
    sealed = context.services.cipher.encrypt(orjson.dumps(requested).decode()) if requested is not None else None
    request = await context.add(
        tables.TriggerRequest(project_id=project.id, trigger_id=locked.id, sealed_variables=sealed, created_at=context.now())
    )
    if not await pipelines.create_triggered_pipeline(context, project, plan, request.id):
        raise NotAllowed("ref", NO_BUILDS)
    return request


async def _authenticate(context: Context, path: str, token: str) -> tuple[tables.Project, tables.Trigger]:
    """The project and its trigger with this token. Both are read in any case, so that the time does not show which is missing."""
    key = lookup.parse_project_key(path)
    project = await context.loader(PROJECTS_LOADER, partial(load_projects, context)).get(key) if key is not None else None
    trigger = await _find_by_token(context, token)
    if project is None or trigger is None:
        raise NotFound("Trigger")
    if trigger.project_id != project.id:
        raise Unauthenticated("The token is that of another project's trigger.")
    return project, trigger


async def _find_by_token(context: Context, token: str) -> tables.Trigger | None:
    digest = digest_token(token)
    found = await context.first(triggers.by_digest(digest))
    return found if found is not None and hmac.compare_digest(found.token_digest, digest) else None


def _validate_variables(requested: Sequence[tuple[str, str]]) -> None:
    """Raises Invalid unless a project could have these variables."""
    if len(requested) > variables.MAX_VARIABLES:
        raise Invalid("variables", f"can have at most {variables.MAX_VARIABLES} entries")
    if sum(len(value.encode()) for _, value in requested) > variables.MAX_TOTAL_BYTES:
        raise Invalid("variables", f"are too long (maximum is {variables.MAX_TOTAL_BYTES} bytes together)")
    for key, value in requested:
        if not variables.is_key(key):
            raise Invalid("variables", "can have only letters, digits and '_' in their names, at most 255")
        variables.validate_value(value, "variables")


async def _plan(context: Context, project: tables.Project, ref: str) -> PipelinePlan | None:
    """The pipeline of a branch, or else a tag, as its file defines it now; None if there is nothing to build."""
    if not has_builds(project):
        return None
    names = [ref] if ref.startswith((BRANCHES, TAGS)) else [BRANCHES + ref, TAGS + ref]
    oids = dict(map(tuple, await context.tuples(refs.targets(project.id, names))))
    name = next((name for name in names if name in oids), None)
    if name is None:
        return None
    path = await full_path(context, project)
    services = context.services
    return await pipeline_planner.plan_ref(services.repositories, project.id, name, oids[name], path, services.ci_file_version)

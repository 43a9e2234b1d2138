"""Variables of projects, and the secret variables that a build received.

Values are encrypted before they reach the database. A build has a copy of those that its runner received, encrypted too, so that its
trace is masked by what the runner knows even if a variable changes meanwhile; the copy is deleted when the build ends. A fork's builds,
those of its merge requests too, belong to the fork's project and receive the variables of that project only.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson
import structlog

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.rules import validation
from storage import tables
from storage.secrets import UndecryptableToken
from storage.tables.base import lock
from storage.tables.builds import triggers, variables

KEY_PATTERN = re.compile("[A-Za-z0-9_]+", re.ASCII)
MAX_VARIABLES = 100
"""Variables of one project."""
MAX_VALUE_BYTES = 2**14
MAX_TOTAL_BYTES = 2**16
"""Bytes of all values of one project, all of which are searched for in traces."""

log = structlog.get_logger("graph")


def validate_key(value: str) -> str:
    """The name of a variable: letters, digits and `_`, at most 255. Raises Required, Invalid."""
    key = validation.validate_title("key", value)
    if not KEY_PATTERN.fullmatch(key):
        raise Invalid("key", "can contain only letters, digits and '_'.")
    return key


def is_key(value: str) -> bool:
    return KEY_PATTERN.fullmatch(value) is not None and len(value) <= validation.MAX_NAME_LENGTH


def validate_value(value: str, field: str = "value") -> str:
    """Any string of at most MAX_VALUE_BYTES in UTF-8. Raises Invalid."""
    if len(validation.validate_string(field, value).encode()) > MAX_VALUE_BYTES:
        raise Invalid(field, f"is too long (maximum is {MAX_VALUE_BYTES} bytes)")
    return value


async def find_variable(context: Context, project: tables.Project, key: str) -> tables.Variable | None:
    """The variable of the project with this name, case-sensitive."""
    return await context.first(variables.with_key(project.id, key))


async def lock_variable(context: Context, project: tables.Project, key: str) -> tables.Variable:
    """The current variable with this name, locked until the transaction ends. Raises NotFound."""
    row = await find_variable(context, project, key)
    found = await context.first(variables.for_update(row.id)) if row is not None else None
    if found is None:
        raise NotFound("Variable")
    return found


async def create_variable(context: Context, project: tables.Project, key: str, value: str) -> tables.Variable:
    """Add a variable. Raises UserErrors."""
    validators = {"key": validate_key, "value": validate_value}
    key, value = validation.validate_all({"key": key, "value": value}, lambda name, string: validators[name](string)).values()
    await _require_room(context, project.id, value)
    moment, sealed = context.now(), context.services.cipher.encrypt(value)
    row = tables.Variable(
        project_id=project.id, key=key, sealed_value=sealed, size=len(value.encode()), created_at=moment, updated_at=moment
    )
    return context.add_deferred(row)


async def update_variable(context: Context, variable: tables.Variable, values: Mapping[str, Any]) -> tables.Variable:
    """Change a locked variable by the values of `UpdateVariableInput` that were sent. Raises Invalid."""
    value = values.get("value")
    if value is not None:
        validate_value(value)
        await _require_room(context, variable.project_id, value, without_id=variable.id)
        variable.sealed_value, variable.size = context.services.cipher.encrypt(value), len(value.encode())
        variable.updated_at = context.now()
        await context.session.flush()
    return variable


async def delete_variable(context: Context, variable: tables.Variable) -> tables.Variable:
    """Delete the variable; running builds keep their copy of it."""
    await context.delete(variable)
    return variable


async def _require_room(context: Context, project_id: int, value: str, *, without_id: int | None = None) -> None:
    """Locks the project, so that concurrent operations see each other's variables. Raises Invalid if it would have too many."""
    await context.value(lock(tables.Project, project_id))
    ((count, size),) = await context.tuples(variables.usage(project_id, without_id))
    if count >= MAX_VARIABLES:
        raise Invalid("key", f"is one too many (a project can have {MAX_VARIABLES} variables)")
    if size + len(value.encode()) > MAX_TOTAL_BYTES:
        raise Invalid("value", f"is too long (the values of a project can have {MAX_TOTAL_BYTES} bytes together)")


def decrypt_value(context: Context, variable: tables.Variable) -> str | None:
    """The value; None if the key with which it was encrypted is lost."""
    return _decrypt(context, variable.sealed_value, variable.key)


def _decrypt(context: Context, sealed_value: str, key: str) -> str | None:
    if not sealed_value:
        return None
    try:
        return context.services.cipher.decrypt(sealed_value)
    except UndecryptableToken:
        log.error("variable cannot be decrypted", key=key)
        return None


async def store_build_variables(context: Context, build: tables.Build) -> None:
    """Store a copy of the variables with a build that a runner claims: those of its project, then those of the trigger's request.

    Those without a value are left out.
    """
    pairs = [
        (key, value)
        for key, sealed in await context.tuples(variables.sealed_values(build.project_id))
        if (value := _decrypt(context, sealed, key)) is not None
    ]
    if build.pipeline_id is not None:
        for (sealed,) in await context.tuples(triggers.request_of_pipeline(build.pipeline_id)):
            pairs += load_pairs(context, sealed)
    build.sealed_variables = context.services.cipher.encrypt(orjson.dumps(pairs).decode()) if pairs else None


def load_build_variables(context: Context, build: tables.Build) -> list[tuple[str, str]]:
    """(key, value) of the secret variables that the running build received, in the order in which the last one of a name applies."""
    return load_pairs(context, build.sealed_variables)


def load_pairs(context: Context, sealed: str | None) -> list[tuple[str, str]]:
    """Decrypt (key, value) of variables; none if the key is lost."""
    if not sealed:
        return []
    try:
        return [(key, value) for key, value in orjson.loads(context.services.cipher.decrypt(sealed))]
    except UndecryptableToken:
        log.error("variables of a build cannot be decrypted")
        return []

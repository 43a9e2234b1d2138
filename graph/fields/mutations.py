"""Mutations: `verbNoun(input: VerbNounInput!): VerbNounPayload!`, where the payload has the entity and `userErrors`.

After a user error the entity is null and the operation is rolled back; an operation error is reported in `errors[]`. The change is
committed before its payload is read.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Optional

import strawberry
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from graph.context import Context, Info
from graph.errors import Code, Conflict, NotFound, UserError, UserErrors
from graph.fields.entities import ENTITIES, global_id
from graph.fields.metadata import facts
from graph.operations.transaction import commit, restart, run_after_commit, switch_to_reader
from graph.rules.validation import to_camel_case
from storage.database.errors import is_lock_conflict, is_unique_violation
from storage.database.writers import ConcurrentChange

MAX_DELETION_ATTEMPTS = 20
"""Attempts of a deletion. It locks a row before all rows that refer to it; other transactions lock them in the opposite order."""
CONFLICT_PAUSE_SECONDS = 0.1

ErrorCode = strawberry.enum(Code, name="ErrorCode", description="All error codes.")


DELETED_ID = ("deleted_id", strawberry.ID, "Global ID of the deleted object, for client caches; null if nothing was deleted.")
"""The additional payload field of mutations that delete."""


@strawberry.type(name="UserError", description="A reason why a mutation failed.")
class UserErrorEntry:
    field: str | None = strawberry.field(description="Input field that caused the error; null if the error concerns the whole input.")
    message: str = strawberry.field(description="Human-readable error message.")
    value: str | None = strawberry.field(description="Offending item, if the field is a list; otherwise null.")
    code: ErrorCode = strawberry.field(description="Machine-readable error code.")  # type: ignore[valid-type]


def mutation(
    *,
    entity: str,
    returns: Any,
    description: str,
    entity_description: str,
    conflict: UserError | Callable[[Any], UserError] | None = None,
    second_field: tuple[str, Any, str] | None = None,
    deletes: bool = False,
    anonymous: bool = False,
    runner: bool = False,
    uses_known_reads: bool = False,
    extra_wait_seconds: float = 0.0,
) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    """Makes a mutation from `async def verb_noun(info, input) -> row`. `conflict` is the error for a violated unique constraint,
    or a function that returns it for the input.

    `second_field` is the name, type and description of a second field of the payload; the function then returns a pair. `deletes`: the
    returned row was deleted, and the second field is its id (`DELETED_ID`). `uses_known_reads`: the mutation reads a project and then only
    inserts, so an earlier read of it may be used (`storage/database/known_read_session.py`). The rest are `FieldFacts`.
    """

    def decorate(function: Callable[..., Awaitable[Any]]) -> Any:
        extra_field = DELETED_ID if deletes else second_field
        payload = _make_payload_type(function.__name__, [(entity, returns, entity_description), *([extra_field] if extra_field else [])])
        extra_name = extra_field[0] if extra_field else None

        async def change(info: Info, input: Any) -> Any:
            if uses_known_reads:
                info.context.session.uses_known_reads = True
            row = await function(info, input)
            if deletes:
                row = row, global_id(ENTITIES[type(row)].name, row.id)
            await commit(info.context)
            return row

        async def resolver(info: Info, input: Any) -> Any:
            context: Context = info.context
            try:
                row = await _repeat(context, partial(change, info, input), MAX_DELETION_ATTEMPTS if deletes else 1)
            except UserError as error:
                return _make_error_payload(payload, (entity, extra_name), error)
            except StaleDataError as error:
                # Another operation has deleted the row meanwhile.
                raise NotFound(entity[0].upper() + entity[1:]) from error
            except IntegrityError as error:
                if not is_unique_violation(error):
                    # A row to which the change refers was deleted meanwhile.
                    raise NotFound("Parent") from error
                taken = conflict(input) if callable(conflict) else conflict
                return _make_error_payload(payload, (entity, extra_name), taken or Conflict(None, "An equal object already exists."))
            await run_after_commit(context)
            await switch_to_reader(context)
            if deletes:
                # The payload shows it, and fields look up the object that they belong to.
                context.rows_by_id(type(row[0])).prime(row[0].id, row[0])
            values = {entity: row} if extra_name is None else dict(zip((entity, extra_name), row, strict=True))
            return payload(**values, user_errors=[])

        kind = function.__annotations__["input"]
        resolver.__name__ = function.__name__
        resolver.__annotations__ = {
            "info": Info,
            "input": Annotated[kind, strawberry.argument(description="Input of the mutation.")],
            "return": payload,
        }
        metadata = facts(anonymous=anonymous, runner=runner, extra_wait_seconds=extra_wait_seconds)
        return strawberry.mutation(resolver=resolver, description=description, metadata=metadata)

    return decorate


async def _repeat(context: Context, change: Callable[[], Awaitable[Any]], max_attempts: int) -> Any:
    """The result of a change. It is repeated once if a row was changed meanwhile, or an error may be due to a known read, since every row
    is then read and locked; and up to `max_attempts` times after a conflict of locks.

    It is not repeated after a conflict if it has effects outside the transaction, which `undo` and `has_committed` show.
    """
    attempt, has_restarted, pause = 1, False, 0.0
    while True:
        try:
            return await change()
        except Exception as error:
            if isinstance(error, ConcurrentChange) or context.session.relies_on_known_read:
                if has_restarted:
                    raise
                has_restarted = True
            else:
                has_effects = context.undo or (context.deadline is not None and context.deadline.has_committed)
                if attempt >= max_attempts or has_effects or not (isinstance(error, DBAPIError) and is_lock_conflict(error)):
                    raise
                attempt += 1
                pause = random.uniform(0.2, 1) * CONFLICT_PAUSE_SECONDS  # noqa: S311 - so that two deletions do not meet each time
        await restart(context)
        # The transactions that it met end meanwhile.
        await asyncio.sleep(pause)


def _make_payload_type(name: str, entities: list[tuple[str, Any, str]]) -> Any:
    title = "".join(part.capitalize() for part in name.split("_")) + "Payload"
    fields: dict[str, tuple[Any, Any]] = {
        # `|` does not support all kinds of types.
        **{entity: (Optional[returns], strawberry.field(description=about)) for entity, returns, about in entities},  # noqa: UP045
        "user_errors": (
            list[UserErrorEntry],
            strawberry.field(description="Reasons why the mutation failed; empty if it succeeded."),
        ),
    }
    members = {key: field for key, (_, field) in fields.items()}
    payload_class = type(title, (), {**members, "__annotations__": {key: kind for key, (kind, _) in fields.items()}})
    return strawberry.type(payload_class, name=title, description=f"Payload of `{to_camel_case(name)}`.")


def _make_error_payload(payload: Any, entities: tuple[str | None, ...], error: UserError) -> Any:
    errors = error.errors if isinstance(error, UserErrors) else [error]
    entries = [UserErrorEntry(field=each.field, message=each.message, value=each.value, code=each.code) for each in errors]
    return payload(**{entity: None for entity in entities if entity}, user_errors=entries)

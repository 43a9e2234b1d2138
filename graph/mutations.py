"""Mutations: `verbNoun(input: VerbNounInput!): VerbNounPayload!`, where the payload has the entity and `userErrors`.

A user error leaves the entity null and nothing of the operation is kept; an operation error comes in `errors[]`. The change is committed
before its payload is read.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Optional

import strawberry
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from graph.context import Context, Info
from graph.declare import ENTITIES, global_id
from graph.errors import Code, Conflict, NotFound, UserError, UserErrors
from graph.transaction import follow, read_on, save
from storage.database import is_conflict

ErrorCode = strawberry.enum(Code, name="ErrorCode", description="Everything that can go wrong: the closed list of codes.")


DELETED_ID = ("deleted_id", strawberry.ID, "The `id` that was deleted, for caches to forget; null where nothing was.")
"""The field of payloads that says what is gone."""
DELETES = ("delete_", "remove_", "unregister_")
"""How the names of mutations begin that delete what they give."""


@strawberry.type(name="UserError", description="Why a mutation changed nothing.")
class UserErrorEntry:
    field: str | None = strawberry.field(description="The input field it is about; null when it is about the whole.")
    message: str = strawberry.field(description="What is wrong, in words.")
    value: str | None = strawberry.field(description="Value of the field that it is about, where the field is a list; else null.")
    code: ErrorCode = strawberry.field(description="What is wrong, for programs.")  # type: ignore[valid-type]


def mutation(
    *,
    entity: str,
    returns: Any,
    description: str,
    entity_description: str,
    conflict: UserError | None = None,
    beside: tuple[str, Any, str] | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    """Makes a mutation of `async def verb_noun(info, input) -> row`. `conflict` is what a hit unique constraint means.

    `beside` is the name, type and description of a second field of the payload; the function gives a pair then. That of a mutation which
    deletes is `DELETED_ID`: of the row that the function gives, unless `beside` says that it gives the id itself.
    """

    def decorate(function: Callable[..., Awaitable[Any]]) -> Any:
        shown = DELETED_ID if beside is None and function.__name__.startswith(DELETES) else beside
        payload = _payload(function.__name__, [(entity, returns, entity_description), *([shown] if shown else [])])
        second = shown[0] if shown else None

        async def resolver(info: Info, input: Any) -> Any:
            context: Context = info.context
            try:
                row = await function(info, input)
                if shown is not beside:
                    row = row, global_id(ENTITIES[type(row)].name, row.id)
                await save(context)
            except UserError as error:
                return _refused(payload, (entity, second), error)
            except StaleDataError as error:
                # Somebody else removed the row while this change was on its way.
                raise NotFound(entity[0].upper() + entity[1:]) from error
            except IntegrityError as error:
                if not is_conflict(error):
                    # A row that the change leans on was removed meanwhile.
                    raise NotFound("Parent") from error
                return _refused(payload, (entity, second), conflict or Conflict(None, "An equal one exists already."))
            await follow(context)
            await read_on(context)
            values = {entity: row} if second is None else dict(zip((entity, second), row, strict=True))
            return payload(**values, user_errors=[])

        kind = function.__annotations__["input"]
        resolver.__name__ = function.__name__
        resolver.__annotations__ = {
            "info": Info,
            "input": Annotated[kind, strawberry.argument(description="What to do.")],
            "return": payload,
        }
        return strawberry.mutation(resolver=resolver, description=description)

    return decorate


def _payload(name: str, entities: list[tuple[str, Any, str]]) -> Any:
    title = "".join(part.capitalize() for part in name.split("_")) + "Payload"
    fields: dict[str, tuple[Any, Any]] = {
        # `|` does not take every kind of type.
        **{entity: (Optional[returns], strawberry.field(description=text)) for entity, returns, text in entities},  # noqa: UP045
        "user_errors": (
            list[UserErrorEntry],
            strawberry.field(description="Why nothing was changed; empty when it was done."),
        ),
    }
    members = {key: field for key, (_, field) in fields.items()}
    made = type(title, (), {**members, "__annotations__": {key: kind for key, (kind, _) in fields.items()}})
    return strawberry.type(made, name=title, description=f"What `{_camel(name)}` answers.")


def _refused(payload: Any, entities: tuple[str | None, ...], error: UserError) -> Any:
    errors = error.errors if isinstance(error, UserErrors) else [error]
    entries = [UserErrorEntry(field=each.field, message=each.message, value=each.value, code=each.code) for each in errors]
    return payload(**{entity: None for entity in entities if entity}, user_errors=entries)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

"""Access tokens."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules.accounts import access_tokens
from graph.rules.permissions.policy import Action
from graph.types.inputs import UserResourceInput, filter_owned, find_owned, get_or, optional
from storage import tables

TokenScope = strawberry.enum(tables.TokenScope, description="What an access token may do with the rights of its user.")

IS_ACCESS_TOKEN = col(tables.Token.scopes).is_not(None)


async def _filter_access_tokens(context: Context, rows: Sequence[Any]) -> list[Any]:
    return [row for row in await filter_owned(context, rows) if row.scopes is not None]


@entity(
    tables.Token,
    description="An access token of a user, beside the private token. Its value is shown only when it is created.",
    filter_nodes=_filter_access_tokens,
    unrestricted="The right is on the account: `filter_owned` checks it.",
)
class AccessToken(Node):
    database_id: int = column(tables.Token.id, description="ID of the token.")
    name: str = column(description="Name that the user chose.")
    created_at: datetime = column(description="When it was created.")
    expires_at: datetime | None = column(description="When it becomes invalid; null if it does not expire.")
    last_used_at: datetime | None = column(
        description="When it was last used, up to six minutes late and with a precision of five minutes; null if it was not."
    )

    @computed(tables.Token.scopes, description="What it may do.")
    def scopes(self) -> list[TokenScope]:  # type: ignore[valid-type]
        token: Any = self
        return [tables.TokenScope(name) for name in token.scopes.split(",")]


@strawberry.type
class UserAccessTokenFields:
    """Fields of a user about access tokens."""

    access_tokens: Connection[AccessToken] | None = to_many(
        tables.Token.user_id,
        order_by=Order(tables.Token.id, descending=True),
        where=(IS_ACCESS_TOKEN,),
        action=Action.READ_ACCOUNT,
        description="Access tokens, newest first, expired ones too. Visible to the user and to administrators.",
    )


@strawberry.input(description="Input of `createAccessToken`.")
class CreateAccessTokenInput:
    name: str = strawberry.field(description="Name to recognize the token by; at most 255 characters.")
    scopes: list[TokenScope] = strawberry.field(description="What it may do; at least one scope besides ADMIN.")  # type: ignore[valid-type]
    expires_at: datetime | None = optional("When it becomes invalid; default: it does not expire.")


@strawberry.input(description="Identifies an access token.")
class RevokeAccessTokenInput(UserResourceInput):
    pass


@mutation(
    entity="access_token",
    returns=AccessToken,
    second_field=("token", str, "Value of the token, a credential, which is not shown again; null if no token was created."),
    entity_description="The created token.",
    description="Creates an access token of the viewer. An access token cannot create one with further scopes or a later expiry.",
)
async def create_access_token(info: Info, input: CreateAccessTokenInput) -> tuple[tables.Token, str]:
    return await access_tokens.create_token(info.context, input.name, input.scopes, get_or(input.expires_at, None))


@mutation(
    entity="access_token",
    returns=AccessToken,
    deletes=True,
    entity_description="The revoked token.",
    description="Deletes an access token of the viewer or, for administrators, of any user. It becomes invalid immediately.",
)
async def revoke_access_token(info: Info, input: RevokeAccessTokenInput) -> tables.Token:
    token = await find_owned(info.context, tables.Token, input)
    return await access_tokens.revoke_token(info.context, token)


@strawberry.type
class AccessTokenMutations:
    create_access_token = create_access_token
    revoke_access_token = revoke_access_token

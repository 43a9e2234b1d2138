"""Email addresses of users."""

from inspect import Parameter
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window, to_many
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.accounts import emails
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import UserResourceInput, filter_owned, find_owned, optional, resolve_owner_id
from storage import tables

IS_SECONDARY = col(tables.Email.is_primary).is_(False)
OLDEST_FIRST = Order(tables.Email.id)


@entity(
    tables.Email,
    description="An email address of a user.",
    filter_nodes=filter_owned,
    unrestricted="The right is on the account: `filter_owned` checks it.",
)
class Email(Node):
    database_id: int = column(tables.Email.id, description="ID in the v3 API.")
    email: str = column(description="The address in lower case; unique in the instance.")
    is_primary: bool = column(description="Whether it is the primary address of the user.")

    @strawberry.field(description="Path of the resource in the v3 API, for its owner.")
    def rest_path(self) -> str:
        return f"/api/v3/user/emails/{self.id}"


@strawberry.type
class UserEmailFields:
    """Fields of a user about secondary email addresses."""

    emails: Connection[Email] | None = to_many(
        tables.Email.user_id,
        order_by=OLDEST_FIRST,
        where=(IS_SECONDARY,),
        action=Action.READ_ACCOUNT,
        description="Secondary email addresses, oldest first. Visible to the user and to administrators.",
    )

    @strawberry.field(description="A secondary email address. Visible to the user and to administrators.")
    async def secondary_email(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="v3 ID of the email address.")]
    ) -> Email | None:
        user: Any = self
        await require(info.context, Action.READ_ACCOUNT, user)
        return await lookup.get_owned_row(info.context, tables.Email, user.id, database_id, IS_SECONDARY)  # type: ignore[return-value]


async def _resolve_emails(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await lookup.get_user(context, arguments["user_id"])
    listing = KeysetListing(tables.Email, OLDEST_FIRST).where(col(tables.Email.user_id) == user.id, IS_SECONDARY)
    return await listing.page(context, make_window(arguments))


@strawberry.type
class EmailQueries:
    emails: Connection[Email] | None = connection_field(
        _resolve_emails,
        extra_arguments={"user_id": (Annotated[int, strawberry.argument(description="v3 ID of the user.")], Parameter.empty)},
        description="Secondary email addresses of a user. Administrators only.",
    )


@strawberry.input(description="Input of `addEmail`.")
class AddEmailInput:
    email: str = strawberry.field(description="The email address.")
    user_id: int | None = optional("v3 ID of the owner, for administrators; default: the viewer.")


@strawberry.input(description="Identifies an email address.")
class DeleteEmailInput(UserResourceInput):
    pass


@mutation(
    entity="email", returns=Email, entity_description="The added email address.", description="Adds a secondary email address to a user."
)
async def add_email(info: Info, input: AddEmailInput) -> tables.Email:
    owner_id = await resolve_owner_id(info.context, input.user_id, is_adding=True)
    return await emails.add_email(info.context, owner_id, input.email)


@mutation(
    entity="email",
    returns=Email,
    deletes=True,
    entity_description="The deleted email address.",
    description="Deletes an email address of a user.",
)
async def delete_email(info: Info, input: DeleteEmailInput) -> tables.Email:
    email = await find_owned(info.context, tables.Email, input)
    return await emails.delete_email(info.context, email)


@strawberry.type
class EmailMutations:
    add_email = add_email
    delete_email = delete_email

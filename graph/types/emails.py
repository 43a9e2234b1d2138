"""E-mail addresses."""

from inspect import Parameter
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order
from graph.context import Info
from graph.declare import Node, column, connection_field, entity, to_many, window_of
from graph.errors import NotAllowed, NotFound
from graph.mutations import mutation
from graph.rules import accounts, finding
from graph.rules.policy import Action, require
from graph.types.inputs import OfUser, find_owned, given, owned_nodes, owner_id
from storage import tables
from storage.tables import emails as statements

SECONDARY = col(tables.Email.is_primary).is_(False)
OLDEST_FIRST = Order(tables.Email.id)


@entity(
    tables.Email,
    description="An e-mail address of a user.",
    nodes=owned_nodes(tables.Email),
    unrestricted="The right is on the account: `owned_nodes` asks for it.",
)
class Email(Node):
    database_id: int = column(tables.Email.id, description="The v3 id.")
    email: str = column(description="The address, in lower case; no two users share one.")
    is_primary: bool = column(description="Whether it is the user's own `email` rather than one beside it.")

    @strawberry.field(description="The path of the same thing in v3, for its owner.")
    def rest_path(self) -> str:
        return f"/api/v3/user/emails/{self.id}"


@strawberry.type
class UserEmails:
    """The part of a user that is about the addresses beside the primary one."""

    emails: Connection[Email] | None = to_many(
        tables.Email.user_id,
        order_by=OLDEST_FIRST,
        where=(SECONDARY,),
        action=Action.READ_ACCOUNT,
        description="The addresses beside the primary one, oldest first; for the user and for administrators.",
    )

    @strawberry.field(description="An address beside the primary one; for the user and for administrators.")
    async def secondary_email(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id of the address.")]
    ) -> Email | None:
        user: Any = self
        await require(info.context, Action.READ_ACCOUNT, user)
        return await finding.of_user(info.context, tables.Email, user.id, database_id, SECONDARY)  # type: ignore[return-value]


async def _emails_of_a_user(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await finding.user(context, arguments["user_id"])
    listing = Listing(tables.Email, OLDEST_FIRST).where(col(tables.Email.user_id) == user.id, SECONDARY)
    return await listing.page(context, window_of(arguments))


@strawberry.type
class EmailQueries:
    emails: Connection[Email] = connection_field(
        _emails_of_a_user,
        more={"user_id": (Annotated[int, strawberry.argument(description="The v3 id of the user.")], Parameter.empty)},
        description="The secondary addresses of any user; administrators only, who hear of a missing user only then.",
    )


@strawberry.input(description="A new e-mail address.")
class AddEmailInput:
    email: str = strawberry.field(description="The address.")
    user_id: int | None = given("The v3 id of the user who gets it; administrators only. The viewer when not sent.")


@strawberry.input(description="Names an e-mail address.")
class DeleteEmailInput(OfUser):
    pass


@mutation(entity="email", returns=Email, entity_description="The new address.", description="Adds an address beside a user's primary one.")
async def add_email(info: Info, input: AddEmailInput) -> tables.Email:
    context = info.context
    owner = await owner_id(context, input.user_id)
    address = accounts.email("email", input.email)
    await accounts.require_free(context, address=address)
    with accounts.constraints_named():
        return await context.add(tables.Email(user_id=owner, email=address, created_at=context.now(), updated_at=context.now()))


@mutation(entity="email", returns=Email, entity_description="The address that is gone.", description="Takes an address away from a user.")
async def delete_email(info: Info, input: DeleteEmailInput) -> tables.Email:
    context = info.context
    email = await find_owned(context, tables.Email, input)
    if email.is_primary:
        raise NotAllowed(None, "The primary address stays; change it with `updateUser`.")
    if await context.value(statements.remove(email.id, email.user_id)) is None:
        raise NotFound("Email")
    context.loaders.clear()
    return email


@strawberry.type
class EmailMutations:
    add_email = add_email
    delete_email = delete_email

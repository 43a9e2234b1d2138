"""SSH keys."""

from datetime import datetime
from inspect import Parameter
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order
from graph.context import Info
from graph.declare import Node, column, connection_field, entity, to_many, window_of
from graph.errors import NotFound, UserError, UserErrors
from graph.events import payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import finding, naming, ssh_keys
from graph.rules.policy import Action, require
from graph.types.inputs import OfUser, find_owned, given, owned_nodes, owner_id
from storage import tables
from storage.tables import ssh_keys as statements

NEWEST_FIRST = Order(tables.SshKey.id, descending=True)


@entity(
    tables.SshKey,
    description="A public key with which a user reaches repositories over SSH.",
    nodes=owned_nodes(tables.SshKey),
    unrestricted="The right is on the account: `owned_nodes` asks for it.",
)
class SshKey(Node):
    database_id: int = column(tables.SshKey.id, description="The v3 id.")
    title: str = column(description="What the user calls it.")
    key: str = column(description="The public key, in one line.")
    fingerprint: str = column(description="The MD5 of the key, as 16 pairs of hex digits; no two keys of the instance share one.")
    created_at: datetime = column(description="When it was added.")

    @strawberry.field(description="The path of the same thing in v3, for its owner.")
    def rest_path(self) -> str:
        return f"/api/v3/user/keys/{self.id}"


@strawberry.type
class UserSshKeys:
    """The part of a user that is about the user's SSH keys."""

    ssh_keys: Connection[SshKey] | None = to_many(
        tables.SshKey.user_id,
        order_by=NEWEST_FIRST,
        action=Action.READ_ACCOUNT,
        description="The user's SSH keys, newest first; for the user and for administrators.",
    )

    @strawberry.field(description="An SSH key of the user; for the user and for administrators.")
    async def ssh_key(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id of the key.")]
    ) -> SshKey | None:
        user: Any = self
        await require(info.context, Action.READ_ACCOUNT, user)
        return await finding.of_user(info.context, tables.SshKey, user.id, database_id)  # type: ignore[return-value]


async def _keys_of_a_user(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await finding.user(context, arguments["user_id"])
    listing = Listing(tables.SshKey, NEWEST_FIRST).where(col(tables.SshKey.user_id) == user.id)
    return await listing.page(context, window_of(arguments))


@strawberry.type
class SshKeyQueries:
    ssh_keys: Connection[SshKey] = connection_field(
        _keys_of_a_user,
        more={"user_id": (Annotated[int, strawberry.argument(description="The v3 id of the user.")], Parameter.empty)},
        description="The SSH keys of any user, newest first; administrators only, who hear of a missing user only then.",
    )


@strawberry.input(description="A new SSH key.")
class AddSshKeyInput:
    title: str = strawberry.field(description="What to call it; at most 255 characters.")
    key: str = strawberry.field(description="The public key in one line, as `ssh-ed25519 AAAA… comment`.")
    user_id: int | None = given("The v3 id of the user who gets it; administrators only. The viewer when not sent.")


@strawberry.input(description="Names an SSH key.")
class DeleteSshKeyInput(OfUser):
    pass


@mutation(entity="ssh_key", returns=SshKey, entity_description="The new key.", description="Adds an SSH key to a user.")
async def add_ssh_key(info: Info, input: AddSshKeyInput) -> tables.SshKey:
    context = info.context
    owner = await owner_id(context, input.user_id)
    problems: list[UserError] = []
    title = key = fingerprint = ""
    try:
        title = naming.title("title", input.title)
    except UserError as error:
        problems.append(error)
    try:
        key, fingerprint = await ssh_keys.read(input.key)
    except UserError as error:
        problems += error.errors if isinstance(error, UserErrors) else [error]
    if problems:
        raise UserErrors(problems)
    return await ssh_keys.add(
        context,
        tables.SshKey(user_id=owner, title=title, key=key, fingerprint=fingerprint, created_at=context.now(), updated_at=context.now()),
    )


@mutation(entity="ssh_key", returns=SshKey, entity_description="The key that is gone.", description="Takes an SSH key away from a user.")
async def delete_ssh_key(info: Info, input: DeleteSshKeyInput) -> tables.SshKey:
    context = info.context
    key = await find_owned(context, tables.SshKey, input)
    await publish(context, payloads.KeyDestroyed, key)
    if await context.value(statements.remove(key.id, key.user_id)) is None:
        raise NotFound("SshKey")
    context.loaders.clear()
    return key


@strawberry.type
class SshKeyMutations:
    add_ssh_key = add_ssh_key
    delete_ssh_key = delete_ssh_key

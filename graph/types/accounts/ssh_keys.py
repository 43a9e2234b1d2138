"""SSH keys."""

from datetime import datetime
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.accounts import ssh_keys
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import UserResourceInput, filter_owned, find_owned, optional, resolve_owner_id
from storage import tables

if TYPE_CHECKING:
    from graph.types.accounts.users import User

NEWEST_FIRST = Order(tables.SshKey.id, descending=True)


@entity(
    tables.SshKey,
    description="SSH public key of a user.",
    filter_nodes=filter_owned,
    unrestricted="The right is on the account: `filter_owned` checks it.",
)
class SshKey(Node):
    database_id: int = column(tables.SshKey.id, description="ID in the v3 API.")
    title: str = column(description="Title.")
    key: str = column(description="Public key in one line.")
    fingerprint: str = column(description="MD5 fingerprint, 16 pairs of hexadecimal digits; unique in the instance.")
    created_at: datetime = column(description="When it was added.")
    user_id: int = column(description="v3 ID of the user.")
    user: Annotated["User", strawberry.lazy("graph.types.accounts.users")] = to_one(
        tables.SshKey.user_id, description="User to whom it belongs."
    )

    @strawberry.field(description="Path of the resource in the v3 API, for its owner.")
    def rest_path(self) -> str:
        return f"/api/v3/user/keys/{self.id}"


@strawberry.type
class UserSshKeyFields:
    """Fields of a user about SSH keys."""

    ssh_keys: Connection[SshKey] | None = to_many(
        tables.SshKey.user_id,
        order_by=NEWEST_FIRST,
        action=Action.READ_ACCOUNT,
        description="SSH keys, newest first. Visible to the user and to administrators.",
    )

    @strawberry.field(description="SSH key of the user. Visible to the user and to administrators.")
    async def ssh_key(self, info: Info, database_id: Annotated[int, strawberry.argument(description="v3 ID of the key.")]) -> SshKey | None:
        user: Any = self
        await require(info.context, Action.READ_ACCOUNT, user)
        return await lookup.get_owned_row(info.context, tables.SshKey, user.id, database_id)  # type: ignore[return-value]


async def _resolve_ssh_keys(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_USERS)
    user = await lookup.get_user(context, arguments["user_id"])
    listing = KeysetListing(tables.SshKey, NEWEST_FIRST).where(col(tables.SshKey.user_id) == user.id)
    return await listing.page(context, make_window(arguments))


@strawberry.type
class SshKeyQueries:
    ssh_keys: Connection[SshKey] | None = connection_field(
        _resolve_ssh_keys,
        extra_arguments={"user_id": (Annotated[int, strawberry.argument(description="v3 ID of the user.")], Parameter.empty)},
        description="SSH keys of a user, newest first. Administrators only.",
    )

    @strawberry.field(description="SSH key of any user, by v3 ID; an error if there is none. Administrators only.")
    async def ssh_key(self, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]) -> SshKey | None:
        await require(info.context, Action.ADMIN_USERS)
        return await ssh_keys.get_key(info.context, database_id)  # type: ignore[return-value]


@strawberry.input(description="Input of `addSshKey`.")
class AddSshKeyInput:
    title: str = strawberry.field(description="Title; at most 255 characters.")
    key: str = strawberry.field(description="Public key in one line, such as `ssh-ed25519 AAAA… comment`.")
    user_id: int | None = optional("v3 ID of the owner, for administrators; default: the viewer.")


@strawberry.input(description="Identifies an SSH key.")
class DeleteSshKeyInput(UserResourceInput):
    pass


@mutation(entity="ssh_key", returns=SshKey, entity_description="The added key.", description="Adds an SSH key to a user.")
async def add_ssh_key(info: Info, input: AddSshKeyInput) -> tables.SshKey:
    owner_id = await resolve_owner_id(info.context, input.user_id, is_adding=True)
    return await ssh_keys.add_key(info.context, owner_id, input.title, input.key)


@mutation(
    entity="ssh_key", returns=SshKey, deletes=True, entity_description="The deleted key.", description="Deletes an SSH key of a user."
)
async def delete_ssh_key(info: Info, input: DeleteSshKeyInput) -> tables.SshKey:
    key = await find_owned(info.context, tables.SshKey, input)
    return await ssh_keys.delete_key(info.context, key)


@strawberry.type
class SshKeyMutations:
    add_ssh_key = add_ssh_key
    delete_ssh_key = delete_ssh_key

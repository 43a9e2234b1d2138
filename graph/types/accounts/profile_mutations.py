"""Mutations with which users change their own profile and password."""

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.accounts import own_account
from graph.types.accounts.users import User
from graph.types.inputs import optional, sent_values
from storage import tables


@strawberry.input(description="Input of `updateProfile`; omitted fields are not changed.")
class UpdateProfileInput:
    name: str | None = optional("Full name.")
    bio: str | None = optional("Biography; at most 255 characters. Null clears it.")
    website_url: str | None = optional("Website: http, https, or without a scheme. Null clears it.")
    messenger: str | None = optional("Messenger address. Null clears it.")
    professional_profile: str | None = optional("URL or name of a professional profile. Null clears it.")
    microblog: str | None = optional("Microblog account. Null clears it.")


@strawberry.input(description="Input of `changePassword`.")
class ChangePasswordInput:
    current_password: str = strawberry.field(description="The present password.")
    password: str = strawberry.field(description="The new one; 8 to 128 characters.")


@mutation(entity="user", returns=User, entity_description="The viewer.", description="Updates the profile of the viewer.")
async def update_profile(info: Info, input: UpdateProfileInput) -> tables.User:
    return await own_account.update_profile(info.context, sent_values(input))


@mutation(
    entity="user",
    returns=User,
    entity_description="The viewer.",
    description="Changes the password of the viewer. Tokens stay valid. Forbidden for an account without a password, such as an account"
    " of a directory. Throttled after ten wrong passwords per minute.",
    extra_wait_seconds=20.0,
)
async def change_password(info: Info, input: ChangePasswordInput) -> tables.User:
    return await own_account.change_password(info.context, input.current_password, input.password)


@strawberry.type
class ProfileMutations:
    update_profile = update_profile
    change_password = change_password

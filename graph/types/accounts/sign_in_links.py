"""Links with which people sign in once, and their mutations."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.accounts import accounts, sign_in_links
from graph.rules.permissions.policy import Action, require
from graph.types.accounts.users import User
from graph.types.inputs import UserInput, get_or, optional, sent_values, user_id_of
from storage import tables


@strawberry.type(description="A link that signs in a user once. It is shown only when it is created.")
class SignInLink:
    user: User = strawberry.field(description="The user that the link signs in.")
    url: str = strawberry.field(description="Address of the sign-in page with the secret code of the link.")
    expires_at: datetime = strawberry.field(description="When the link becomes invalid.")


@strawberry.input(description="Input of `createSignInLink`.")
class CreateSignInLinkInput(UserInput):
    expires_in_hours: int | None = optional("Hours until the link becomes invalid, at most 720; default 72.")


@strawberry.input(description="Input of `signInByLink`.")
class SignInByLinkInput:
    code: str = strawberry.field(description="The code of the link: what follows `#link=` in its URL.")
    password: str | None = optional("New password of the user, 8 to 128 characters; without it, the password is not changed.")


@mutation(
    entity="link",
    returns=SignInLink,
    entity_description="The created link.",
    description="Creates a link that signs in a user once, such as an imported user without a password. Earlier links of the user become"
    " invalid. Administrators only.",
)
async def create_sign_in_link(info: Info, input: CreateSignInLinkInput) -> SignInLink:
    await require(info.context, Action.ADMIN_USERS)
    user = await accounts.lock_user(info.context, user_id_of(input))
    link = await sign_in_links.create_link(info.context, user, get_or(input.expires_in_hours, None))
    return SignInLink(user=link.user, url=link.url, expires_at=link.expires_at)  # type: ignore[arg-type]


@mutation(
    entity="user",
    returns=User,
    anonymous=True,
    entity_description="The signed-in user; `privateToken` is the credential for further requests.",
    description="Signs in with a link of `createSignInLink`, which then becomes invalid. Requires no credential.",
)
async def sign_in_by_link(info: Info, input: SignInByLinkInput) -> tables.User:
    return await sign_in_links.sign_in(info.context, input.code, sent_values(input))


@strawberry.type
class SignInLinkMutations:
    create_sign_in_link = create_sign_in_link
    sign_in_by_link = sign_in_by_link

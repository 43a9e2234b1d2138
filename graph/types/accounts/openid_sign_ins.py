"""Sign-in with OpenID Connect: the query that starts it and the mutation that completes it."""

import strawberry

from graph.context import Info
from graph.fields.metadata import facts
from graph.fields.mutations import mutation
from graph.rules.external_accounts import openid_sign_in
from graph.types.accounts.users import User
from graph.types.inputs import get_or, optional
from storage import tables


@strawberry.type(description="A sign-in at the OpenID provider that was started.")
class OpenIdSignIn:
    authorization_url: str = strawberry.field(description="Address of the provider to which the browser goes.")
    ticket: str = strawberry.field(description="Ticket that `finishOpenIdSignIn` requires; valid for ten minutes.")


@strawberry.input(description="Input of `finishOpenIdSignIn`.")
class FinishOpenIdSignInInput:
    ticket: str = strawberry.field(description="The ticket of `openIdSignIn`, from the same browser.")
    state: str = strawberry.field(description="Parameter `state` of the address to which the provider sent the browser back.")
    code: str = strawberry.field(description="Parameter `code` of that address.")
    issuer: str | None = optional("Parameter `iss` of that address, if it has one.")


@strawberry.type
class OpenIdQueries:
    @strawberry.field(
        description="Starts a sign-in at the OpenID provider. Not found if none is configured. Available without credentials if it is the"
        " only field of the query.",
        metadata=facts(anonymous=True),
    )
    async def open_id_sign_in(self, info: Info) -> OpenIdSignIn:
        request = await openid_sign_in.begin(info.context)
        return OpenIdSignIn(authorization_url=request.authorization_url, ticket=request.ticket)


@mutation(
    entity="user",
    returns=User,
    anonymous=True,
    entity_description="The signed-in user; `privateToken` is the credential for further requests.",
    description="Completes a sign-in of `openIdSignIn`, and makes an account at the first one. Requires no credential.",
    extra_wait_seconds=20.0,
)
async def finish_open_id_sign_in(info: Info, input: FinishOpenIdSignInInput) -> tables.User:
    return await openid_sign_in.finish(
        info.context, ticket=input.ticket, state=input.state, code=input.code, issuer=get_or(input.issuer, None)
    )


@strawberry.type
class OpenIdMutations:
    finish_open_id_sign_in = finish_open_id_sign_in

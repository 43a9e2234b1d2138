"""`forgefront admin user`."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.operating import WRONG, As, Data, Json, fail, operate
from forgefront.commands.printing import show
from forgefront.operator import Forge, sent

DOCUMENT = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "username", "name", "email", "state", "admin")

app = typer.Typer(no_args_is_help=True, help="Users: people, and programs, with an account.")

Username = Annotated[str, typer.Argument(help="The user.")]
Email = Annotated[str | None, typer.Option(help="The primary e-mail address.", show_default=False)]
Name = Annotated[str | None, typer.Option(help="The full name.", show_default=False)]
Admin = Annotated[bool | None, typer.Option("--admin/--no-admin", help="Whether an administrator.", show_default=False)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="Read the password from the first line of this file; - is standard input.", allow_dash=True, show_default=False),
]
CanCreateGroup = Annotated[bool | None, typer.Option(help="Whether the user may create groups.", show_default=False)]
ProjectsLimit = Annotated[int | None, typer.Option(help="How many personal projects the user may have.", show_default=False)]
Bio = Annotated[str | None, typer.Option(help="What the user says of themselves.", show_default=False)]
Skype = Annotated[str | None, typer.Option(help="The address at a messenger.", show_default=False)]
Linkedin = Annotated[str | None, typer.Option(help="A professional profile.", show_default=False)]
Twitter = Annotated[str | None, typer.Option(help="A microblog.", show_default=False)]
Website = Annotated[str | None, typer.Option("--website-url", help="The user's own page.", show_default=False)]
Provider = Annotated[str | None, typer.Option(help="The directory in which --extern-uid is.", show_default=False)]
ExternUid = Annotated[str | None, typer.Option(help="The user's id in a directory.", show_default=False)]
Confirmed = Annotated[bool | None, typer.Option(help="Whether the e-mail address was confirmed.", show_default=False)]


@app.command("list")
def list_users(
    search: Annotated[str | None, typer.Option(help="Only with this text in the username, name or e-mail.", show_default=False)] = None,
    active: Annotated[bool, typer.Option("--active", help="Leave out who is blocked.")] = False,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """List the users, the newest first."""
    found = operate(data, DOCUMENT, lambda forge: forge.every("Users", search=search, active=active or None), username=username)
    show(found, as_json, COLUMNS)


@app.command("show")
def show_user(user: Username, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Show all that is known of a user, except secrets."""
    show(operate(data, DOCUMENT, lambda forge: _find(forge, user), username=username), as_json)


@app.command("create")
def create_user(
    user: Annotated[str, typer.Argument(metavar="USERNAME", help="The name in mentions and paths.")],
    email: Annotated[str, typer.Option(help="The primary e-mail address.")],
    name: Annotated[str | None, typer.Option(help="The full name.  [default: the username]", show_default=False)] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Make an administrator.")] = False,
    password_file: PasswordFile = None,
    no_password: Annotated[bool, typer.Option("--no-password", help="No password: the user only has a token.")] = False,
    can_create_group: CanCreateGroup = None,
    projects_limit: ProjectsLimit = None,
    bio: Bio = None,
    skype: Skype = None,
    linkedin: Linkedin = None,
    twitter: Twitter = None,
    website_url: Website = None,
    provider: Provider = None,
    extern_uid: ExternUid = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Open an account; the first administrator is made so too.

    The password is asked for, or read from standard input where that is no terminal, or from --password-file. It is no option,
    since every user of the machine can read the arguments of a command. `forgefront admin token show` gives the token.
    """
    password = None if no_password else _password(password_file)
    values = sent(
        username=user,
        email=email,
        name=name or user,
        password=password,
        admin=admin or None,
        confirm=False,
        canCreateGroup=can_create_group,
        projectsLimit=projects_limit,
        bio=bio,
        messenger=skype,
        professionalProfile=linkedin,
        microblog=twitter,
        websiteUrl=website_url,
        provider=provider,
        externUid=extern_uid,
    )
    show(operate(data, DOCUMENT, lambda forge: forge.run("CreateUser", input=values), creates=True), as_json)


@app.command("change")
def change_user(
    user: Username,
    new_username: Annotated[str | None, typer.Option(help="Another username; personal projects move along.", show_default=False)] = None,
    email: Email = None,
    add_email: Annotated[list[str] | None, typer.Option(help="Add a secondary e-mail address.", show_default=False)] = None,
    name: Name = None,
    admin: Admin = None,
    password_file: PasswordFile = None,
    ask_password: Annotated[bool, typer.Option("--password", help="Ask for a new password, or read it from standard input.")] = False,
    can_create_group: CanCreateGroup = None,
    projects_limit: ProjectsLimit = None,
    bio: Bio = None,
    skype: Skype = None,
    linkedin: Linkedin = None,
    twitter: Twitter = None,
    website_url: Website = None,
    provider: Provider = None,
    extern_uid: ExternUid = None,
    confirmed: Confirmed = None,
    blocked_by_directory: Annotated[
        bool | None, typer.Option(help="Block on behalf of a directory, which only it takes back.", show_default=False)
    ] = None,
    two_factor_enabled: Annotated[bool | None, typer.Option(help="Whether signing in takes a second factor.", show_default=False)] = None,
    theme_id: Annotated[int | None, typer.Option(help="The theme of the pages.", show_default=False)] = None,
    color_scheme_id: Annotated[int | None, typer.Option(help="The colours of code.", show_default=False)] = None,
    current_sign_in_at: Annotated[
        datetime | None,
        typer.Option(help="When the user last signed in, UTC.", formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"], show_default=False),
    ] = None,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Change an account; what is not given stays, and empty text clears what may be empty."""
    values = sent(
        username=new_username,
        email=email,
        name=name,
        admin=admin,
        password=_password(password_file) if ask_password or password_file else None,
        canCreateGroup=can_create_group,
        projectsLimit=projects_limit,
        bio=bio,
        messenger=skype,
        professionalProfile=linkedin,
        microblog=twitter,
        websiteUrl=website_url,
        provider=provider,
        externUid=extern_uid,
        confirmed=confirmed,
        blockedByDirectory=blocked_by_directory,
        twoFactorEnabled=two_factor_enabled,
        themeId=theme_id,
        colorSchemeId=color_scheme_id,
        currentSignInAt=current_sign_in_at.replace(tzinfo=UTC).isoformat() if current_sign_in_at else None,
    )
    if not values and not add_email:
        fail("nothing to change; see --help", WRONG)

    async def work(forge: Forge) -> Any:
        key = (await _find(forge, user))["id"]
        for address in add_email or ():
            await forge.run("AddEmail", user_id=key, email=address)
        if values:
            await forge.run("UpdateUser", input={"databaseId": key, **values})
        return await _find(forge, new_username or user)

    show(operate(data, DOCUMENT, work, username=username), as_json)


@app.command("block")
def block_user(user: Username, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Keep a user out of the service from now on."""
    _do("BlockUser", user, data, username, as_json)


@app.command("unblock")
def unblock_user(user: Username, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Let a user in again."""
    _do("UnblockUser", user, data, username, as_json)


@app.command("delete")
def delete_user(
    user: Username,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Close an account. Personal projects go with it; what the user wrote elsewhere stays, as a ghost's."""
    yes or typer.confirm(f"Delete the user {user} with all personal projects?", abort=True)
    _do("DeleteUser", user, data, username, as_json)


def _do(operation: str, user: str, data: Path | None, username: str | None, as_json: bool) -> None:
    async def work(forge: Forge) -> Any:
        return await forge.run(operation, id=(await _find(forge, user))["id"])

    show(operate(data, DOCUMENT, work, username=username), as_json)


async def _find(forge: Forge, username: str) -> Any:
    user = await forge.run("User", username=username)
    user["secondary_emails"] = [entry["email"] for entry in (user["secondary_emails"] or {"nodes": []})["nodes"]]
    return user


def _password(file: Path | None) -> str:
    """From a file, a terminal or standard input; ends the command where there is none."""
    if file is not None and str(file) != "-":
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"the password cannot be read: {error}")
        found = lines[0] if lines else ""
    elif file is None and sys.stdin.isatty():
        found = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        fail("no password was given: type it, pipe it in, name a --password-file, or leave it out with --no-password", WRONG)
    return found

"""`forgefront admin user`."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.command_context import EXIT_USAGE, DataOption, JsonOption, UsernameOption, fail, run_with_client
from forgefront.commands.output import print_result
from forgefront.local_client import LocalClient, drop_nulls

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "username", "name", "email", "state", "admin")

app = typer.Typer(no_args_is_help=True, help="Users: people, and programs, with an account.")

UsernameArgument = Annotated[str, typer.Argument(help="The user.")]
EmailOption = Annotated[str | None, typer.Option(help="The primary e-mail address.", show_default=False)]
NameOption = Annotated[str | None, typer.Option(help="The full name.", show_default=False)]
AdminOption = Annotated[bool | None, typer.Option("--admin/--no-admin", help="Whether an administrator.", show_default=False)]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(help="Read the password from the first line of this file; - is standard input.", allow_dash=True, show_default=False),
]
CanCreateGroupOption = Annotated[bool | None, typer.Option(help="Whether the user may create groups.", show_default=False)]
ProjectsLimitOption = Annotated[int | None, typer.Option(help="How many personal projects the user may have.", show_default=False)]
BioOption = Annotated[str | None, typer.Option(help="What the user says of themselves.", show_default=False)]
SkypeOption = Annotated[str | None, typer.Option(help="The address at a messenger.", show_default=False)]
LinkedinOption = Annotated[str | None, typer.Option(help="A professional profile.", show_default=False)]
TwitterOption = Annotated[str | None, typer.Option(help="A microblog.", show_default=False)]
WebsiteOption = Annotated[str | None, typer.Option("--website-url", help="The user's own page.", show_default=False)]
ProviderOption = Annotated[str | None, typer.Option(help="The directory in which --extern-uid is.", show_default=False)]
ExternUidOption = Annotated[str | None, typer.Option(help="The user's id in a directory.", show_default=False)]
ConfirmedOption = Annotated[bool | None, typer.Option(help="Whether the e-mail address was confirmed.", show_default=False)]


@app.command("list")
def list_users(
    search: Annotated[str | None, typer.Option(help="Only with this text in the username, name or e-mail.", show_default=False)] = None,
    active: Annotated[bool, typer.Option("--active", help="Leave out who is blocked.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the users, the newest first."""
    found = run_with_client(
        data, OPERATIONS_FILE, lambda forge: forge.list_all("Users", search=search, active=active or None), username=username
    )
    print_result(found, as_json, COLUMNS)


@app.command("show")
def show_user(user: UsernameArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Show all that is known of a user, except secrets."""
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: _find_user(forge, user), username=username), as_json)


@app.command("create")
def create_user(
    user: Annotated[str, typer.Argument(metavar="USERNAME", help="The name in mentions and paths.")],
    email: Annotated[str, typer.Option(help="The primary e-mail address.")],
    name: Annotated[str | None, typer.Option(help="The full name.  [default: the username]", show_default=False)] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Make an administrator.")] = False,
    password_file: PasswordFileOption = None,
    no_password: Annotated[bool, typer.Option("--no-password", help="No password: the user only has a token.")] = False,
    can_create_group: CanCreateGroupOption = None,
    projects_limit: ProjectsLimitOption = None,
    bio: BioOption = None,
    skype: SkypeOption = None,
    linkedin: LinkedinOption = None,
    twitter: TwitterOption = None,
    website_url: WebsiteOption = None,
    provider: ProviderOption = None,
    extern_uid: ExternUidOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Open an account; the first administrator is made so too.

    The password is asked for, or read from standard input where that is no terminal, or from --password-file. It is no option,
    since every user of the machine can read the arguments of a command. `forgefront admin token show` gives the token.
    """
    password = None if no_password else _read_password(password_file)
    values = drop_nulls(
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
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("CreateUser", input=values), may_create=True), as_json)


@app.command("change")
def change_user(
    user: UsernameArgument,
    new_username: Annotated[str | None, typer.Option(help="Another username; personal projects move along.", show_default=False)] = None,
    email: EmailOption = None,
    add_email: Annotated[list[str] | None, typer.Option(help="Add a secondary e-mail address.", show_default=False)] = None,
    name: NameOption = None,
    admin: AdminOption = None,
    password_file: PasswordFileOption = None,
    ask_password: Annotated[bool, typer.Option("--password", help="Ask for a new password, or read it from standard input.")] = False,
    can_create_group: CanCreateGroupOption = None,
    projects_limit: ProjectsLimitOption = None,
    bio: BioOption = None,
    skype: SkypeOption = None,
    linkedin: LinkedinOption = None,
    twitter: TwitterOption = None,
    website_url: WebsiteOption = None,
    provider: ProviderOption = None,
    extern_uid: ExternUidOption = None,
    confirmed: ConfirmedOption = None,
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
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an account; what is not given stays, and empty text clears what may be empty."""
    values = drop_nulls(
        username=new_username,
        email=email,
        name=name,
        admin=admin,
        password=_read_password(password_file) if ask_password or password_file else None,
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
        fail("nothing to change; see --help", EXIT_USAGE)

    async def work(forge: LocalClient) -> Any:
        key = (await _find_user(forge, user))["id"]
        for address in add_email or ():
            await forge.run("AddEmail", user_id=key, email=address)
        if values:
            await forge.run("UpdateUser", input={"databaseId": key, **values})
        return await _find_user(forge, new_username or user)

    print_result(run_with_client(data, OPERATIONS_FILE, work, username=username), as_json)


@app.command("block")
def block_user(user: UsernameArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Keep a user out of the service from now on."""
    _run_for_user("BlockUser", user, data, username, as_json)


@app.command("unblock")
def unblock_user(user: UsernameArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Let a user in again."""
    _run_for_user("UnblockUser", user, data, username, as_json)


@app.command("delete")
def delete_user(
    user: UsernameArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close an account. Personal projects go with it; what the user wrote elsewhere stays, as a ghost's."""
    yes or typer.confirm(f"Delete the user {user} with all personal projects?", abort=True)
    _run_for_user("DeleteUser", user, data, username, as_json)


def _run_for_user(operation: str, user: str, data: Path | None, username: str | None, as_json: bool) -> None:
    async def work(forge: LocalClient) -> Any:
        return await forge.run(operation, id=(await _find_user(forge, user))["id"])

    print_result(run_with_client(data, OPERATIONS_FILE, work, username=username), as_json)


async def _find_user(forge: LocalClient, username: str) -> Any:
    user = await forge.run("User", username=username)
    user["secondary_emails"] = [entry["email"] for entry in (user["secondary_emails"] or {"nodes": []})["nodes"]]
    return user


def _read_password(file: Path | None) -> str:
    """From a file, a terminal or standard input; ends the command where there is none."""
    if file is not None and str(file) != "-":
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"the password cannot be read: {error}")
        password = lines[0] if lines else ""
    elif file is None and sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        fail("no password was given: type it, pipe it in, name a --password-file, or leave it out with --no-password", EXIT_USAGE)
    return password

"""`forgefront admin user`."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.command_context import EXIT_USAGE, DataOption, JsonOption, UsernameOption, fail, fail_unchanged, run_with_client
from forgefront.commands.output import print_result
from forgefront.local_client import LocalClient, drop_nulls

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "username", "name", "email", "state", "admin")

app = typer.Typer(no_args_is_help=True, help="Manage users, people and programs alike.")

UsernameArgument = Annotated[str, typer.Argument(help="The username.")]
UsernamesArgument = Annotated[list[str], typer.Argument(metavar="USER...", help="The usernames.")]
EmailOption = Annotated[str | None, typer.Option(help="The primary e-mail address.", show_default=False)]
NameOption = Annotated[str | None, typer.Option(help="The full name.", show_default=False)]
AdminOption = Annotated[bool | None, typer.Option("--admin/--no-admin", help="Whether the user is an administrator.", show_default=False)]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(help="Read the password from the first line of this file; - is standard input.", allow_dash=True, show_default=False),
]
CanCreateGroupOption = Annotated[bool | None, typer.Option(help="Whether the user may create groups.", show_default=False)]
ProjectsLimitOption = Annotated[int | None, typer.Option(help="Maximum number of personal projects.", show_default=False)]
BioOption = Annotated[str | None, typer.Option(help="A short biography.", show_default=False)]
SkypeOption = Annotated[str | None, typer.Option(help="An address in a messenger.", show_default=False)]
LinkedinOption = Annotated[str | None, typer.Option(help="A professional profile.", show_default=False)]
TwitterOption = Annotated[str | None, typer.Option(help="A microblog.", show_default=False)]
WebsiteOption = Annotated[str | None, typer.Option("--website-url", help="The user's website.", show_default=False)]
ProviderOption = Annotated[str | None, typer.Option(help="The directory that contains --extern-uid.", show_default=False)]
ExternUidOption = Annotated[str | None, typer.Option(help="The user's id in a directory.", show_default=False)]
ConfirmedOption = Annotated[bool | None, typer.Option(help="Whether the e-mail address was confirmed.", show_default=False)]


@app.command("list")
def list_users(
    search: Annotated[
        str | None, typer.Option(help="Only users whose username, name or e-mail contains this string.", show_default=False)
    ] = None,
    active: Annotated[bool, typer.Option("--active", help="Leave out blocked users.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the users, newest first."""
    found = run_with_client(
        data, OPERATIONS_FILE, lambda forge: forge.list_all("Users", search=search, active=active or None), username=username
    )
    print_result(found, as_json, COLUMNS)


@app.command("show")
def show_user(user: UsernameArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Show everything about a user except secrets."""
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: _find_user(forge, user), username=username), as_json)


@app.command("create")
def create_user(
    user: Annotated[str, typer.Argument(metavar="USERNAME", help="The name in mentions and paths.")],
    email: Annotated[str, typer.Option(help="The primary e-mail address.")],
    name: Annotated[str | None, typer.Option(help="The full name.", show_default="the username")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Make the user an administrator.")] = False,
    password_file: PasswordFileOption = None,
    no_password: Annotated[bool, typer.Option("--no-password", help="Set no password: the user has only a token.")] = False,
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
    """Create a user, for example the first administrator.

    The password is prompted for, or read from standard input if that is not a terminal, or from --password-file. It is not an option, since
    every user of the machine can read the arguments of a command. `forgefront admin token show` prints the token.
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
    context: typer.Context,
    user: UsernameArgument,
    new_username: Annotated[str | None, typer.Option(help="Another username; personal projects move with it.", show_default=False)] = None,
    email: EmailOption = None,
    add_email: Annotated[list[str] | None, typer.Option(help="Add a secondary e-mail address.", show_default=False)] = None,
    name: NameOption = None,
    admin: AdminOption = None,
    password_file: PasswordFileOption = None,
    ask_password: Annotated[bool, typer.Option("--password", help="Prompt for a new password, or read it from standard input.")] = False,
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
        bool | None, typer.Option(help="Block as the directory does; only the directory can unblock the account.", show_default=False)
    ] = None,
    two_factor_enabled: Annotated[
        bool | None, typer.Option(help="Whether signing in requires a second factor.", show_default=False)
    ] = None,
    theme_id: Annotated[int | None, typer.Option(help="The theme of the pages.", show_default=False)] = None,
    color_scheme_id: Annotated[int | None, typer.Option(help="The colour scheme of code.", show_default=False)] = None,
    current_sign_in_at: Annotated[
        datetime | None,
        typer.Option(help="When the user last signed in, UTC.", formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"], show_default=False),
    ] = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a user. Options that are not given change nothing, and an empty value clears an optional field."""
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
        fail_unchanged(context)

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
    """Block a user."""
    _run_for_user("BlockUser", user, data, username, as_json)


@app.command("unblock")
def unblock_user(user: UsernameArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Unblock a user."""
    _run_for_user("UnblockUser", user, data, username, as_json)


@app.command("sign-in-link")
def create_sign_in_link(
    users: UsernamesArgument,
    hours: Annotated[int | None, typer.Option(help="Hours until the link becomes invalid, at most 720.", show_default="72")] = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a link that signs the user in once, for people without a password. It replaces earlier links of the user.

    Of several users, each line has the username, a tab and the link. Links begin with FORGEFRONT_EXTERNAL_URL.
    """

    async def work(forge: LocalClient) -> Any:
        # All are found first, so that a misspelled name creates no link.
        found, links = [await _find_user(forge, user) for user in users], []
        for user in found:
            links.append({"username": user["username"], **await forge.run("CreateSignInLink", id=user["id"], hours=hours)})
            if not as_json:
                # The bare address of one user, for $(forgefront admin user sign-in-link NAME). Each is printed at once, because the link of
                # a later user may fail, and earlier ones would be lost.
                typer.echo(links[-1]["url"] if len(users) == 1 else f"{user['username']}\t{links[-1]['url']}")
        return links

    links = run_with_client(data, OPERATIONS_FILE, work, username=username)
    if as_json:
        print_result(links[0] if len(users) == 1 else links, as_json)


@app.command("delete")
def delete_user(
    user: UsernameArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a user with all personal projects. Their issues, merge requests and comments elsewhere are reassigned to the ghost user."""
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
    """Reads a password from a file, a terminal or standard input; ends the command if it is empty."""
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
        fail("no password: type it, pipe it in, name a --password-file, or use --no-password", EXIT_USAGE)
    return password

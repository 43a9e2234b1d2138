"""`forgefront admin`."""

import typer

from forgefront.commands.admin import groups, members, projects, secret_key, tokens, users

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Administer users, tokens, groups, projects and members, beside the running service, and the secret key.",
)
for name, noun in (
    ("user", users),
    ("token", tokens),
    ("group", groups),
    ("project", projects),
    ("member", members),
    ("secret-key", secret_key),
):
    app.add_typer(noun.app, name=name)

"""`forgefront admin`."""

import typer

from forgefront.commands.admin import groups, members, projects, tokens, users

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Administer users, tokens, groups, projects and members. May run beside the service."
)
for name, noun in (("user", users), ("token", tokens), ("group", groups), ("project", projects), ("member", members)):
    app.add_typer(noun.app, name=name)

"""Runs operations for the user of the command line, one at a time, and turns errors into messages.

Operations run as an administrator, or as the user that is named; the rules of the graph apply as for everybody.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graph.errors import Code
from graph.operations.callers import LocalAdmin
from graph.operations.execution import Graph, OperationResult, PreparedOperation, prepare

OPTION_NAMES = {
    "repositoryPath": "--repository",
    "groupPath": "--group",
    "externUid": "--extern-uid",
    "accessLevel": "--level",
    "expiresInHours": "--hours",
    "scopes": "--scope",
    "tagList": "--tag",
    "username": "username",
    "userId": "username",
    "messenger": "--skype",
    "professionalProfile": "--linkedin",
    "microblog": "--twitter",
}
"""Options whose names differ from their input fields. `--username` is always the user who acts, and usernames are arguments."""


NAMING_ARGUMENTS = {"User": ("username",), "Group": ("group", "groupPath", "path"), "Project": ("projectPath", "path")}
"""The variables and input fields that name what errors call by its type."""


class OperationRejected(Exception):
    """The operation was refused or failed. The message has a line for each error."""

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(message)
        self.code = code


@cache
def prepare_operation(document: Path, name: str) -> PreparedOperation:
    """The operation `name` of a .graphql file beside the commands; operations of one file may share fragments."""
    return prepare(document.read_text(encoding="utf-8"), name)


class LocalClient:
    """The graph, called directly by the command line."""

    def __init__(self, graph: Graph, document: Path, username: str | None = None) -> None:
        self.graph = graph
        self._document = document
        self._username = username

    async def run(self, name: str, *, by: str | None = None, **variables: Any) -> Any:
        """The result of the operation's single root field; for a mutation, its entity. Omits variables that are None. Raises
        OperationRejected."""
        operation = prepare_operation(self._document, name)
        present = drop_nulls(**variables)
        try:
            result = await self.graph.run_as_admin(LocalAdmin(by or self._username), operation, present)
            # A path is an argument of the commands that create something.
            return unwrap_result(result, {"path": "--new-path" if name.startswith("Update") else "path"})
        except OperationRejected as error:
            missing = _find_missing_name(str(error), {"username": by or self._username} | present | present.get("input", {}))
            if error.code is not Code.NOT_FOUND or missing is None:
                raise
            raise OperationRejected(f"{str(error).removesuffix('.')}: {missing}", code=error.code) from None

    async def list_all(self, name: str, connection_field: str | None = None, **variables: Any) -> list[Any]:
        """All nodes of a connection, page by page; `connection_field` names it where it is a field of the root field."""
        nodes: list[Any] = []
        after: str | None = None
        while True:
            value = await self.run(name, after=after, **variables)
            page = value[connection_field] if connection_field else value
            nodes += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                return nodes
            after = page["pageInfo"]["endCursor"]


def _find_missing_name(message: str, values: dict[str, Any]) -> str | None:
    """The argument that names what the message says is not found."""
    names = NAMING_ARGUMENTS.get(message.removesuffix(" not found."), ())
    return next((values[name] for name in names if values.get(name)), None)


def drop_nulls(**values: Any) -> dict[str, Any]:
    """The fields of an input that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def unwrap_result(result: OperationResult, option_names: Mapping[str, str] | None = None) -> Any:
    """The value of the single root field. Raises OperationRejected, whose message names options rather than input fields."""
    if result.errors:
        first_error = result.errors[0]
        raise OperationRejected("\n".join(dict.fromkeys(each.message for each in result.errors)), code=first_error.code)
    ((_, value),) = (result.data or {}).items()
    if not isinstance(value, dict) or "userErrors" not in value:
        return value
    errors = value.pop("userErrors")
    if errors:
        names = {**OPTION_NAMES, **(option_names or {})}
        lines = [f"{option_name(error['field'], names)}: {error['message']}" if error["field"] else error["message"] for error in errors]
        raise OperationRejected("\n".join(dict.fromkeys(lines)), code=Code(errors[0]["code"]))
    ((_, entity),) = value.items()
    return entity


def option_name(field: str, names: Mapping[str, str] = OPTION_NAMES) -> str:
    """`dueDate` becomes `--due-date`."""
    return names.get(field) or "--" + re.sub("[A-Z]", lambda letter: "-" + letter[0].lower(), field)

"""Route: the one shape of a row of the interface."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_v3.params import Parameter

Reshape = Callable[[Any, Mapping[str, Any]], Any]
"""From what the row gives, and the operation's whole data beside it, to the body."""

Answer = int | tuple[int, object]
"""A status, or a status and its text (below 400: its whole body). In the text for a user error, `{Field}` stands for the field it is
about, capitalized, and `{message}` for what is wrong with it."""

ALIASES: Mapping[str, str] = {
    "/projects/:id/merge_request/:merge_request_id": "/projects/:id/merge_requests/:merge_request_id",
}
"""Other spellings of the beginning of a path that clients of the time use (clients.md 3, row 6)."""


class BadRowError(Exception):
    """A row and its operation do not fit; raised at start, never during a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, the operation that answers it, and how the answer looks.

    `Route(call="PUT /projects/:id/issues/:issue_id", ...)` answers PUT on that path; every `:name` is one of `params`.
    """

    call: str
    operation: str
    """The name of the operation in the `.graphql` file beside the row."""
    params: tuple[Parameter, ...] = ()
    """`page` and `per_page` are not among them: an operation with `$first` and `$offset` has them."""
    gives: str | None = None
    """Where the answer stands in the operation's data, as `updateIssue.issue`; None: the body is `null`."""
    status: int | None = None
    """The status of success; by default 201 for POST and 200 for the rest."""
    errors: Mapping[str, Answer] = field(default_factory=dict)
    """What differs from the table of `rest_v3/errors.py`, by code: `{"FORBIDDEN": 401}`, `{"NOT_FOUND": 200}`."""
    reshape: Reshape | None = None
    total: bool = True
    """Whether a list knows its length; without, there are no totals and no last page."""
    whole: bool = False
    """Whether a connection is answered in full, unpaged."""
    guard: str | None = None
    """The operation that says whether the caller may do this at all, asked before a 400 is answered."""
    missing: str | Mapping[str, str] | None = None
    """The noun of the 404 text, as in "404 Label Not Found", for all or by the noun that the graph did not find; "" gives
    "404 Not Found", None "404 Not found"."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Names of fields in validation messages where they are not the parameter's: `{"name": "title"}`."""
    by_value: Mapping[str, str] = field(default_factory=dict)
    """Lists whose wrong values are reported each by itself, and the name that they have then: with `{"labels": "title"}` the message is
    `{"labels": {"a?": {"title": ["is invalid"]}}}`, else `{"labels": ["'a?' is invalid"]}`. The operation selects `userErrors { value }`.
    """
    needs_one_of: tuple[str, ...] = ()
    """Optional parameters of which at least one has to be sent."""
    anonymous: bool = False
    """Whether the row is open to callers without a credential."""
    no_store: bool = False
    """Whether the answer holds a secret that no cache may keep."""
    refuses: int | None = None
    """The status with which the row refuses everybody whom its operation, usually `Viewer`, lets pass."""
    limit: str | None = None
    """Where the guard's data says how many bytes the row's file may have, as `project.uploadLimit`; a row with a file has one."""
    stream: str | None = None
    """The key in what the row gives that names the file which is its answer; `{"message": …}` stays the form of its errors."""
    shape: str | None = None
    """The name of the closed key set that the answer has; of one entry where the answer is a list."""
    section: str = ""
    summary: str = ""
    codes: tuple[str, ...] = ()
    """Codes of user errors that the operation may give besides INVALID, REQUIRED, TAKEN and CONFLICT: each has its status in the OpenAPI
    document. Those in `errors` need not be named here."""
    name: str = ""
    """What the OpenAPI document calls the operation; by default its name. Rows that share one, or change it by profile, have a name."""

    @property
    def method(self) -> str:
        return self.call.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.call.partition(" ")[2]

    @property
    def path_names(self) -> tuple[str, ...]:
        """The names of the path parameters, in order.

        >>> Route(call="GET /users/:uid/keys/:id", operation="UserKey").path_names
        ('uid', 'id')
        """
        return tuple(segment[1:] for segment in self.path.split("/") if segment.startswith(":"))

    @property
    def operation_id(self) -> str:
        """>>> Route(call="GET /user", operation="CurrentUser").operation_id
        'currentUser'
        """
        name = self.name or self.operation
        return name[:1].lower() + name[1:]

    @property
    def success(self) -> int:
        if self.status is not None:
            return self.status
        return 201 if self.method == "POST" else 200

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its path and the aliases of it."""
        return (
            self.path,
            *(
                alias + self.path[len(prefix) :]
                for alias, prefix in ALIASES.items()
                if self.path == prefix or self.path.startswith(prefix + "/")
            ),
        )

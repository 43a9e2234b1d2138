"""Route: the one shape of a row of the interface."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_v3.requests.params import RouteParameter

Reshape = Callable[[Any, Mapping[str, Any]], Any]
"""From what the row gives, and the operation's whole data beside it, to the body."""

StatusOverride = int | tuple[int, object]
"""A status, or a status and its text (below 400: its whole body). In the text for a user error, `{Field}` stands for the field it is
about, capitalized, and `{message}` for what is wrong with it."""

PATH_ALIASES: Mapping[str, str] = {
    "/projects/:id/merge_request/:merge_request_id": "/projects/:id/merge_requests/:merge_request_id",
}
"""Other spellings of the beginning of a path that clients of the time use (clients.md 3, row 6)."""


class InvalidRouteError(Exception):
    """A row and its operation do not fit; raised at start, never during a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, the operation that answers it, and how the answer looks.

    `Route(call="PUT /projects/:id/issues/:issue_id", ...)` answers PUT on that path; every `:name` is one of `params`.
    """

    call: str
    operation: str
    """The name of the operation in the `.graphql` file beside the row."""
    params: tuple[RouteParameter, ...] = ()
    """`page` and `per_page` are not among them: an operation with `$first` and `$offset` has them."""
    result_path: str | None = None
    """Where the answer stands in the operation's data, as `updateIssue.issue`; None: the body is `null`."""
    status: int | None = None
    """The status of success; by default 201 for POST and 200 for the rest."""
    errors: Mapping[str, StatusOverride] = field(default_factory=dict)
    """What differs from the table of `rest_v3/errors.py`, by code: `{"FORBIDDEN": 401}`, `{"NOT_FOUND": 200}`."""
    reshape: Reshape | None = None
    has_total: bool = True
    """Whether a list knows its length; without, there are no totals and no last page."""
    is_unpaged: bool = False
    """Whether a connection is answered in full, unpaged."""
    guard: str | None = None
    """The operation that says whether the caller may do this at all, asked before a 400 is answered."""
    not_found_noun: str | Mapping[str, str] | None = None
    """The noun of the 404 text, as in "404 Label Not Found", for all or by the noun that the graph did not find; "" gives
    "404 Not Found", None "404 Not found"."""
    error_field_names: Mapping[str, str] = field(default_factory=dict)
    """Names of fields in validation messages where they are not the parameter's: `{"name": "title"}`."""
    errors_by_value: Mapping[str, str] = field(default_factory=dict)
    """Lists whose wrong values are reported each by itself, and the name that they have then: with `{"labels": "title"}` the message is
    `{"labels": {"a?": {"title": ["is invalid"]}}}`, else `{"labels": ["'a?' is invalid"]}`. The operation selects `userErrors { value }`.
    """
    needs_one_of: tuple[str, ...] = ()
    """Optional parameters of which at least one has to be sent."""
    allows_anonymous: bool = False
    """Whether the row is open to callers without a credential."""
    no_store: bool = False
    """Whether the answer holds a secret that no cache may keep."""
    rejection_status: int | None = None
    """The status with which the row refuses everybody whom its operation, usually `Viewer`, lets pass."""
    upload_limit_path: str | None = None
    """Where the guard's data says how many bytes the row's file may have, as `project.uploadLimit`; a row with a file has one."""
    file_key: str | None = None
    """The key in what the row gives that names the file which is its answer; `{"message": …}` stays the form of its errors."""
    shape: str | None = None
    """The name of the closed key set that the answer has; of one entry where the answer is a list."""
    section: str = ""
    summary: str = ""
    error_codes: tuple[str, ...] = ()
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
    def success_status(self) -> int:
        if self.status is not None:
            return self.status
        return 201 if self.method == "POST" else 200

    @property
    def paths(self) -> tuple[str, ...]:
        """Its path and the aliases of it."""
        return (
            self.path,
            *(
                alias + self.path[len(prefix) :]
                for alias, prefix in PATH_ALIASES.items()
                if self.path == prefix or self.path.startswith(prefix + "/")
            ),
        )

"""Route: a row of the interface."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_v3.pagination import PAGE_RULES, PageRules
from rest_v3.requests.params import RouteParameter

Reshape = Callable[[Any, Mapping[str, Any]], Any]
"""A function from the value at the result path, and the operation's whole data, to the body."""

StatusOverride = int | tuple[int, object]
"""A status, or a status and its message (below 400: its whole body). In the message for an error of the operation, a string or a list of
strings, `{Field}` is the field of a user error, capitalized, and `{message}` the error."""


class PathNumber(str):
    """In a body of `Route.errors`: stands for the number in the path parameter of this name."""

    __slots__ = ()


PATH_ALIASES: Mapping[str, str] = {
    "/projects/:id/merge_request/:merge_request_id": "/projects/:id/merge_requests/:merge_request_id",
}
"""Alternative path prefixes that legacy clients use."""


class InvalidRouteError(Exception):
    """A route and its operation do not match; raised at start, never during a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, the operation it runs, and the form of the response.

    `Route(call="PUT /projects/:id/issues/:issue_id", ...)` serves PUT on that path; every `:name` is one of `params`.
    """

    call: str
    operation: str
    """The name of the operation in the `.graphql` file beside the row."""
    params: tuple[RouteParameter, ...] = ()
    """`page` and `per_page` are implied: an operation with `$first` and `$offset` has them."""
    result_path: str | None = None
    """The path of the result in the operation's data, such as `updateIssue.issue`. None: the body is `null`."""
    status: int | None = None
    """The status of success; by default 201 for POST and 200 otherwise."""
    errors: Mapping[str, StatusOverride] = field(default_factory=dict)
    """Overrides of the table in `rest_v3/errors.py`, by code: `{"FORBIDDEN": 401}`, `{"NOT_FOUND": 200}`.

    A noun after the code limits it to what the graph did not find: `{"NOT_FOUND ProjectMember": 200}`; the input field of a user error to
    errors of that field: `{"INVALID ref": (400, "Invalid reference name")}`.
    """
    reshape: Reshape | None = None
    has_total: bool = True
    """Whether a list has a total count; without it, there are no totals and no last page."""
    is_unpaged: bool = False
    """Whether a connection is returned in full, without pages."""
    page_rules: PageRules = PAGE_RULES
    guard: str | None = None
    """The operation that checks whether the caller may do this at all, before a 400 is returned."""
    not_found_noun: str | Mapping[str, str] | None = None
    """The noun of the 404 message, as in "404 Label Not Found", for all or by the noun that the graph did not find; "" produces "404 Not
    Found", None "404 Not found"."""
    error_field_names: Mapping[str, str] = field(default_factory=dict)
    """Names of fields in validation messages where they differ from the parameter's: `{"name": "title"}`."""
    errors_by_value: Mapping[str, str] = field(default_factory=dict)
    """Lists whose invalid values are reported separately, and their name there: with `{"labels": "title"}` the message is `{"labels":
    {"a?": {"title": ["is invalid"]}}}`, else `{"labels": ["'a?' is invalid"]}`. The operation selects `userErrors { value }`."""
    needs_one_of: tuple[str, ...] = ()
    """Optional parameters of which at least one is required."""
    allows_anonymous: bool = False
    """Whether the route is open to callers without a credential."""
    no_store: bool = False
    """Whether the response contains a secret that no cache may store."""
    has_secret_path: bool = False
    """Whether the path contains a secret, so that the access log shows the route instead."""
    rejection_status: int | None = None
    """The status with which the route refuses every caller whom its operation, usually `Viewer`, authorizes."""
    upload_limit_path: str | None = None
    """The path of the maximum file size in the guard's data, such as `project.uploadLimit`. Required for a route with a file."""
    body_limit_path: str | None = None
    """The path of the maximum file size in the guard's data, for a route whose parameters include the contents of a file. A body that is
    larger than usual is read only after the guard has authorized the caller by the query string and the headers."""
    file_key: str | None = None
    """The key of the result that names the file to respond with. Errors remain `{"message": …}`."""
    is_text: bool = False
    """Whether the result is a string that is sent as plain text instead of JSON. Errors remain `{"message": …}`."""
    file_type: str = "application/octet-stream"
    """The content type of the file. It must be one that browsers do not run."""
    file_disposition: str = "attachment"
    """The type of the header Content-Disposition. Browsers take one that they do not know as `attachment`."""
    extension_parameter: str | None = None
    """The parameter whose words may also be the ending of the path, as in `/archive.zip`."""
    shape: str | None = None
    """The name of the closed key set of the response, or of one entry if the response is a list."""
    section: str = ""
    summary: str = ""
    error_codes: tuple[str, ...] = ()
    """Codes of user errors that the operation may return besides INVALID, REQUIRED, TAKEN and CONFLICT: each has its status in the OpenAPI
    document. Codes in `errors` need not be listed here."""
    name: str = ""
    """The OpenAPI operation id; by default the operation's name. Routes that share an operation, or change it by profile, set one."""

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
    def spanning_names(self) -> frozenset[str]:
        """The path parameters that may hold slashes."""
        return frozenset(parameter.name for parameter in self.params if parameter.spans_segments)

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
        """Its path, that with each ending, and the aliases of the path."""
        words = next((each.allowed_words for each in self.params if each.name == self.extension_parameter), ())
        return (
            self.path,
            *(f"{self.path}.{word}" for word in words),
            *(
                alias + self.path[len(prefix) :]
                for alias, prefix in PATH_ALIASES.items()
                if self.path == prefix or self.path.startswith(prefix + "/")
            ),
        )

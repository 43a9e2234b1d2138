"""The rules of the interface document as the project's own data, and how a test cites those that it proves.

Read are the sections that say how the service behaves as a whole; what single calls take and answer stands in `document.py`. Each
statement of those sections (a row of a table, an entry of a list) is given with the rules that it makes. A rule is named by what it
says; where the document leaves something open ("not shown"), the rule is what docs/decisions.md fixed.

A test cites what it proves: `@cites("Errors: 409 for a label that exists")`, on the function or on its class.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object] | type)


@dataclass(frozen=True, slots=True)
class InterfaceStatement:
    section: str
    text: str
    """As the document has them, without its marks of lists and ends of rows; `…` stands for words that are left out."""
    rules: tuple[str, ...]


def _section(title: str, prefix: str, statements: Mapping[str, tuple[str, ...]]) -> tuple[InterfaceStatement, ...]:
    return tuple(InterfaceStatement(title, words, tuple(f"{prefix}: {rule}" for rule in rules)) for words, rules in statements.items())


INTERFACE_STATEMENTS: tuple[InterfaceStatement, ...] = (
    *_section(
        "States and transitions",
        "States",
        {
            "Build status | pending, running, failed, success, canceled": ("states of a build",),
            "Commit status | pending, running, success, failed, canceled": ("states of a commit status",),
            "Issue | opened, closed": ("states of an issue",),
            "Merge request | opened, closed, merged, reopened": ("states of a merge request",),
            "Milestone | active, closed": ("states of a milestone",),
            "User | active, blocked": ("states of a user",),
            "Build | POST cancel | build exists | canceled | returns the build": ("a build is canceled by cancel",),
            "Build | POST retry | build exists | pending | … started_at and finished_at null": (
                "a build is pending after retry, with started_at and finished_at null",
            ),
            "Build | POST erase | build exists | no status change is shown | removes artifacts and build trace; returns the build": (
                "erase leaves the status of a build as it is",
                "erase removes artifacts and trace",
            ),
            "Commit status | POST /projects/:id/statuses/:sha with `state` | always | status equals the given state … | adds a "
            "status or updates the one with the same name": (
                "a commit status takes the given state whatever it was",
                "posting adds a commit status or updates the one of the same name",
            ),
            "Issue | PUT with state_event=close | issue exists | closed |": ("an issue is closed by state_event=close",),
            "Issue | PUT with state_event=reopen | issue exists | opened |": ("an issue is opened by state_event=reopen",),
            "Merge request | PUT merge | mergeable, not merged or closed | merged | returns the merge request": (
                "a merge request is merged by merge",
                "merge needs a merge request that can be merged and is not merged or closed",
            ),
            "Merge request | PUT cancel_merge_when_build_succeeds | set to merge when build succeeds | opened … | returns the merge "
            "request": ("a merge request is opened and waits no more after cancel_merge_when_build_succeeds",),
            "User | PUT block | user found | blocked |": ("a user is blocked by block",),
            "User | PUT unblock | user found | active |": ("a user is active after unblock",),
            "Merge request PUT accepts state_event with values close, reopen, merge. Resulting states per event: not shown.": (
                "state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged",
            ),
            "Milestone PUT accepts state_event with values close, activate. Resulting states per event: not shown.": (
                "state_event of a milestone is close or activate and makes it closed or active",
            ),
            "Build: the states from which cancel, retry and erase are allowed: not shown.": (
                "cancel leaves a finished build as it is",
                "retry and erase are for builds that have ended",
            ),
            "Block on an already-blocked user, and unblock of a user blocked by directory synchronization, return 403.": (
                "block of a blocked user is 403",
                "unblock of a user blocked by the directory is 403",
            ),
        },
    ),
    *_section(
        "Authentication",
        "Authentication",
        {
            "Requests carry the header `PRIVATE-TOKEN` whose value is the user's private token, <PRIVATE_TOKEN>.": (
                "the header PRIVATE-TOKEN carries the user's private token",
            ),
            "Every call to the issues endpoints must be authenticated.": ("every call to issues needs a caller",),
            "The current-user response contains the field `private_token`.": ("the current user shows the private_token",),
            "System hooks and application settings require administrator authorization.": (
                "system hooks are for administrators",
                "application settings are for administrators",
            ),
            "User creation, modification, deletion, block/unblock, listing of another user's keys and e-mails, adding or deleting keys "
            "and e-mails for another user, and project transfer to a group are administrator only.": (
                "creating users is for administrators",
                "modifying users is for administrators",
                "deleting users is for administrators",
                "block and unblock are for administrators",
                "listing another's keys and e-mails is for administrators",
                "adding keys and e-mails for another is for administrators",
                "deleting another's keys and e-mails is for administrators",
                "transfer of a project to a group is for administrators",
            ),
            "Group creation is available to users allowed to create groups.": ("creating groups is for users who may",),
            "Merge, and cancel of merge-when-build-succeeds, require permission to accept the merge request; otherwise 401.": (
                "merge without the right to accept is 401",
                "cancel of the waiting merge without the right to accept is 401",
            ),
            "How a token is obtained, token scopes, expiry and alternative credential schemes: not shown.": (
                "a password gives the token",
                "a bearer header or the parameter private_token carry the token as well, and nothing else does",
            ),
        },
    ),
    *_section(
        "Events",
        "Events",
        {
            "The service sends notifications to system hooks, whose receiving URL is set with POST /hooks or in the administration area.": (
                "a hook made with POST /hooks receives its events",
                "a hook made in the graph, where administrators work, receives its events",
            ),
            "A hook record carries the event-type switches push_events, tag_push_events, issues_events, merge_requests_events, "
            "note_events (booleans) and enable_ssl_verification (boolean).": (
                "a hook's record carries the five switches and enable_ssl_verification",
                "a hook receives an event only if its switch is on",
                "enable_ssl_verification decides whether the certificate of a receiver must be good",
            ),
            "The hook test (GET /hooks/:id) returns a sample project-creation event with fields project_id, owner_email, owner_name, "
            "name, path, event_name (event_name value: project_create).": ("the test of a hook answers the sample project_create",),
            "The complete list of event names and the payloads of each event: not shown.": (
                "system events have closed payloads",
                "push, tag, issue, merge request and note events have closed payloads",
            ),
            "Delivery details (headers, signing, retries, time-outs): not shown.": (
                "a delivery is a signed POST that ends in time",
                "a delivery that fails is tried ten times",
            ),
            "No events are emitted by the other operations in this interface beyond the hooks described.": (
                "other operations emit no event",
            ),
        },
    ),
    *_section(
        "Errors",
        "Errors",
        {
            "200 | success of reads, creates (issues, merge requests, labels), updates, deletes, block/unblock": (
                "200 for reads, updates and deletes",
                "200 for created issues, merge requests and labels",
                "200 for block and unblock",
            ),
            "201 | SSH key or e-mail created": ("201 for a created key", "201 for a created e-mail"),
            "400 | wrong parameters (labels); key or e-mail creation failure": (
                "400 for wrong parameters of labels",
                "400 for a key that cannot be created",
                "400 for an e-mail that cannot be created",
            ),
            "401 | no permission to accept or cancel merge of a merge request": ("401 without the right to accept or cancel a merge",),
            "403 | block/unblock conflict with directory synchronization": ("403 for block and unblock against the directory",),
            "404 | resource not found; a GET on a private project by a non-member; artifacts missing; label missing; key/e-mail creation "
            "for an unknown user; user modification failures (…)": (
                "404 for what is not there",
                "404 for reads of a private project by a non-member",
                "404 for missing artifacts",
                "404 for a missing label",
                "404 for a key or e-mail of an unknown user",
                "404 for every failure to modify a user",
            ),
            "405 | DELETE of an issue (deprecated); merge where 'Branch cannot be merged' is the message for conflicts; 'Method Not "
            "Allowed' for a merge request already merged or closed": (
                "405 for DELETE of an issue",
                "405 Branch cannot be merged for conflicts",
                "405 Method Not Allowed for a merge request merged or closed",
            ),
            "406 | cancel merge-when-build-succeeds on a merge request not set to merge when the build succeeds": (
                "406 for cancel where no merge waits",
            ),
            "409 | label already exists": ("409 for a label that exists",),
            "Validation errors on SSH key and e-mail creation return 400 with a body `message`: an object mapping each field name to an "
            "array of strings (for example `has already been taken` for fingerprint, key or email).": (
                "the message of a wrong key or e-mail maps fields to lists of texts",
            ),
            "Other failures return an error number and a message explaining the reason.": ("every failure has a status and a message",),
            "The general shape of an error body: not shown.": ("an error body is an object with message, for unknown calls too",),
            "The response for a missing or invalid token: not shown.": ("a missing or wrong token is 401",),
        },
    ),
    *_section(
        "Limits",
        "Limits",
        {
            "Default page size of list results | 20": ("a page has 20 entries by default",),
            "Maximum page size (per_page) | 100": ("a page has 100 entries at most",),
            "Paging parameters | page, per_page": ("lists are paged by page, from one, and per_page",),
            "default_projects_limit | project limit per user, default 10": (
                "default_projects_limit is 10 and is given to new users",
                "a user makes no more projects than their limit",
            ),
            "max_attachment_size | MB": ("max_attachment_size counts MB",),
            "session_expire_delay | minutes": ("session_expire_delay is a number of minutes",),
            "Rate limits and request-size limits: not shown.": (
                "guessing passwords is throttled",
                "a body has 1 MiB at most",
            ),
        },
    ),
    *_section(
        "Versioning",
        "Versioning",
        {
            "The version is part of the path prefix: /api/v3.": ("every call stands below /api/v3",),
            "The artifacts endpoint was introduced in service version 8.5.": ("artifacts are served under every profile",),
            "The commit status API (statuses endpoints) is the current one since service version 8.1; an older commit-status "
            "documentation is deprecated.": ("commit statuses are those of the statuses endpoints, under every profile",),
            "DELETE of an issue is deprecated and returns 405; closing is done with PUT and state_event=close.": (
                "an issue is closed with PUT and never deleted",
            ),
            "Deprecation policy and negotiation of versions other than by path: not shown.": ("only the path chooses the version",),
        },
    ),
)

RULES = frozenset(rule for statement in INTERFACE_STATEMENTS for rule in statement.rules)


def cites(*rules: str) -> Callable[[Test], Test]:
    """Marks a test, or a class of tests, with the rules that it proves. Raises ValueError for one that is not in RULES."""
    unknown = set(rules) - RULES
    if unknown or not rules:
        raise ValueError(f"no rule of tests/rest_v3/support/interface_rules.py: {sorted(unknown)}")
    return lambda test: test

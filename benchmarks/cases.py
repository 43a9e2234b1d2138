"""What is asked of both sides, and the proof that both answer the same."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.data import Data
from benchmarks.load import Ask
from benchmarks.servers import Server

V3 = "/api/v3"
CHANGES = "changes of a merge request of 50 files"

LIST = """
query Issues($path: String!) {
  project(path: $path) {
    issues(first: 20) {
      totalCount
      nodes {
        id: databaseId iid project_id: projectId title description state created_at: createdAt updated_at: updatedAt labels
        milestone {
          id: databaseId iid project_id: projectId title description state created_at: createdAt updated_at: updatedAt due_date: dueDate
        }
        assignee { ...user }
        author { ...user }
      }
    }
  }
}
fragment user on User { id: databaseId username name state avatar_url: avatarUrl web_url: webUrl }
"""

Read = Callable[[Any], Any]


class UnfairError(Exception):
    """The two sides do not answer the same, so a comparison would mean nothing."""


@dataclass(frozen=True)
class Case:
    """A question to both sides. `read` takes what is comparable out of our answer (None: all of it, which is the peer's answer too)."""

    name: str
    ours: Ask
    peer: Ask
    read: Read | None = None


def cases(data: Data) -> list[Case]:
    lists = tuple(f"{V3}/projects/{project}/issues" for project in data.projects)
    listing = Ask("GET", lists, data.token)
    one = Ask("GET", tuple(f"{V3}/projects/{project}/issues/{issue}" for project, issue in data.issues), data.token)
    notes = tuple(f"{V3}/projects/{project}/issues/{issue}/notes" for project, issue in data.issues)
    post = Ask("POST", notes, data.token, json.dumps({"body": "A note that the benchmark wrote, of a usual length for a note."}), 201)
    graph = Ask("POST", ("/graphql",), data.token, json.dumps({"query": LIST, "variables": {"path": str(data.projects[0])}}))
    first = Ask("GET", lists[:1], data.token)
    builds = listing_of(data, "builds")
    merge_requests = listing_of(data, "merge_requests")
    return [
        Case("list 20 issues", listing, listing),
        Case("one issue", one, one),
        Case("post a note", post, post),
        Case("list 20 issues, GraphQL", graph, first, lambda answer: answer["data"]["project"]["issues"]["nodes"]),
        Case("list 20 builds", builds, builds),
        Case("list 20 merge requests", merge_requests, merge_requests),
    ]


def listing_of(data: Data, what: str, count: int | None = None) -> Ask:
    """The question for the first page of the builds, or the merge requests, of each project; `count` is not the usual number of rows."""
    rows = f"?per_page={count}" if count is not None else ""
    return Ask("GET", tuple(f"{V3}/projects/{project}/{what}{rows}" for project in data.worked_on), data.token)


def changes_of(data: Data, *, small: bool = False) -> Ask:
    """The question for what a merge request changes: fifty files, or one."""
    project, merge_request = data.changing
    merge_request -= small
    return Ask("GET", (f"{V3}/projects/{project}/merge_requests/{merge_request}/changes",), data.token)


def counted(data: Data) -> dict[str, dict[str, Ask]]:
    """Questions whose number of SQL statements is to be the same for one row, or file, and for many: case → their number → question."""
    lists = {"list 20 builds": "builds", "list 20 merge requests": "merge_requests"}
    return {
        **{name: {str(count): listing_of(data, what, count) for count in (1, 20)} for name, what in lists.items()},
        CHANGES: {"1": changes_of(data, small=True), "50": changes_of(data)},
    }


def check_same(case: Case, ours: Server, peer: Server) -> None:
    """Asks both sides once. Raises UnfairError unless both answer the same fields with the same values."""
    compare(case, fetch(ours, case.ours), fetch(peer, case.peer))


def compare(case: Case, our_answer: Any, peer_answer: Any) -> None:
    """Raises UnfairError. Of a row that was just written, the id and the time differ and are left out."""
    left, right = plain(case.read(our_answer) if case.read else our_answer), plain(peer_answer)
    if case.ours.method == "POST" and case.read is None:
        for answer in (left, right):
            for key in ("id", "created_at"):
                if key not in answer:
                    raise UnfairError(f"{case.name}: an answer has no {key}")
                answer[key] = None
    if left != right:
        raise UnfairError(f"{case.name}: the answers differ\nours: {json.dumps(left)[:1500]}\npeer: {json.dumps(right)[:1500]}")


def fetch(server: Server, ask: Ask) -> Any:
    """The JSON of the first of the requests. Raises UnfairError for another status than it must have."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{ask.paths[0]}",
        method=ask.method,
        headers=ask.headers,
        data=ask.body.encode() if ask.body is not None else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    if status != ask.status:
        raise UnfairError(f"{server.name} answered {status} to {ask.method} {ask.paths[0]}: {body[:500]!r}")
    return json.loads(body)


def plain(value: Any) -> Any:
    """The answer with instants as such, since v3 spells them with three fraction digits, and words of enumerations in lower case."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        if value in ("OPENED", "CLOSED", "ACTIVE", "BLOCKED"):
            return value.lower()
        if len(value) > 18 and value[4] == value[7] == "-" and value[10] == "T":
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return value

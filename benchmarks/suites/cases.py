"""What is asked of both sides, and the proof that both answer the same."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.dataset.seed import Dataset
from benchmarks.harness.load import LoadRequest
from benchmarks.harness.servers import MeasuredServer

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
class BenchmarkCase:
    """A question to both sides. `read` takes what is comparable out of our answer (None: all of it, which is the peer's answer too)."""

    name: str
    ours: LoadRequest
    peer: LoadRequest
    read: Read | None = None


def create_cases(data: Dataset) -> list[BenchmarkCase]:
    lists = tuple(f"{V3}/projects/{project}/issues" for project in data.projects)
    listing = LoadRequest("GET", lists, data.token)
    one = LoadRequest("GET", tuple(f"{V3}/projects/{project}/issues/{issue}" for project, issue in data.issues), data.token)
    notes = tuple(f"{V3}/projects/{project}/issues/{issue}/notes" for project, issue in data.issues)
    post = LoadRequest(
        "POST", notes, data.token, json.dumps({"body": "A note that the benchmark wrote, of a usual length for a note."}), 201
    )
    graph = LoadRequest("POST", ("/graphql",), data.token, json.dumps({"query": LIST, "variables": {"path": str(data.projects[0])}}))
    first = LoadRequest("GET", lists[:1], data.token)
    builds = listing_request(data, "builds")
    merge_requests = listing_request(data, "merge_requests")
    return [
        BenchmarkCase("list 20 issues", listing, listing),
        BenchmarkCase("one issue", one, one),
        BenchmarkCase("post a note", post, post),
        BenchmarkCase("list 20 issues, GraphQL", graph, first, lambda answer: answer["data"]["project"]["issues"]["nodes"]),
        BenchmarkCase("list 20 builds", builds, builds),
        BenchmarkCase("list 20 merge requests", merge_requests, merge_requests),
    ]


def listing_request(data: Dataset, what: str, count: int | None = None) -> LoadRequest:
    """The question for the first page of the builds, or the merge requests, of each project; `count` is not the usual number of rows."""
    rows = f"?per_page={count}" if count is not None else ""
    return LoadRequest("GET", tuple(f"{V3}/projects/{project}/{what}{rows}" for project in data.history_projects), data.token)


def changes_request(data: Dataset, *, small: bool = False) -> LoadRequest:
    """The question for what a merge request changes: fifty files, or one."""
    project, merge_request = data.changed_merge_request
    merge_request -= small
    return LoadRequest("GET", (f"{V3}/projects/{project}/merge_requests/{merge_request}/changes",), data.token)


def statement_count_cases(data: Dataset) -> dict[str, dict[str, LoadRequest]]:
    """Questions whose number of SQL statements is to be the same for one row, or file, and for many: case → their number → question."""
    lists = {"list 20 builds": "builds", "list 20 merge requests": "merge_requests"}
    return {
        **{name: {str(count): listing_request(data, what, count) for count in (1, 20)} for name, what in lists.items()},
        CHANGES: {"1": changes_request(data, small=True), "50": changes_request(data)},
    }


def check_same_answers(case: BenchmarkCase, ours: MeasuredServer, peer: MeasuredServer) -> None:
    """Asks both sides once. Raises UnfairError unless both answer the same fields with the same values."""
    compare_answers(case, fetch(ours, case.ours), fetch(peer, case.peer))


def compare_answers(case: BenchmarkCase, our_answer: Any, peer_answer: Any) -> None:
    """Raises UnfairError. Of a row that was just written, the id and the time differ and are left out."""
    left, right = normalize(case.read(our_answer) if case.read else our_answer), normalize(peer_answer)
    if case.ours.method == "POST" and case.read is None:
        for answer in (left, right):
            for key in ("id", "created_at"):
                if key not in answer:
                    raise UnfairError(f"{case.name}: an answer has no {key}")
                answer[key] = None
    if left != right:
        raise UnfairError(f"{case.name}: the answers differ\nours: {json.dumps(left)[:1500]}\npeer: {json.dumps(right)[:1500]}")


def fetch(server: MeasuredServer, load_request: LoadRequest) -> Any:
    """The JSON of the first of the requests. Raises UnfairError for another status than it must have."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{load_request.paths[0]}",
        method=load_request.method,
        headers=load_request.headers,
        data=load_request.body.encode() if load_request.body is not None else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    if status != load_request.status:
        raise UnfairError(f"{server.name} answered {status} to {load_request.method} {load_request.paths[0]}: {body[:500]!r}")
    return json.loads(body)


def normalize(value: Any) -> Any:
    """The answer with instants as such, since v3 spells them with three fraction digits, and words of enumerations in lower case."""
    if isinstance(value, dict):
        return {key: normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, str):
        if value in ("OPENED", "CLOSED", "ACTIVE", "BLOCKED"):
            return value.lower()
        if len(value) > 18 and value[4] == value[7] == "-" and value[10] == "T":
            timestamp = datetime.fromisoformat(value)
            return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
    return value

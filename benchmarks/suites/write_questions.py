"""The questions of `scripts/bench writes`: changes of issues, lists of the caller in all projects, and a mixed load."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.dataset.seed import GROUP, Dataset
from benchmarks.harness.answers import UnfairError
from benchmarks.harness.load import LoadRequest
from benchmarks.suites import questions
from benchmarks.suites.questions import ISSUE, V3

TITLES = {
    "mixed": "9 lists of 20 issues to a note",
    "note": "post a note",
    "create": "create an issue",
    "update": "change an issue",
    "accept": "accept a merge request",
    "issues": "20 issues of the caller in all projects",
    "merge_requests": "20 merge requests of the caller in all projects",
    "projects": "20 projects of the caller",
    "group": "20 projects of a group",
}
"""The titles by key, in the order of the table. `accept` is sent by one client, each request once. The mixed load is first, because v3
shows fewer digits of the timestamps of issues that were just created."""
SIDES = {"forgefront": "POST /graphql", "v3": "REST v3", "floor": "floor", "floor_v3": "floor of v3"}
READS_PER_WRITE = 9
TITLE = "An issue that the benchmark created"
DESCRIPTIONS = ("A description of a usual length for an issue.", "Another description, so that each request changes the issue.")

_USER = "fragment user on User { databaseId username name state }"
_CHANGED = f"issue {{ databaseId iid title description state createdAt author {{ ...user }} }} userErrors {{ code }} }} }} {_USER}"
CREATE = f"mutation Create($input: CreateIssueInput!) {{ createIssue(input: $input) {{ {_CHANGED}"
UPDATE = f"mutation Update($input: UpdateIssueInput!) {{ updateIssue(input: $input) {{ {_CHANGED}"
ISSUES = f"query Own {{ issues(first: 20) {{ nodes {{ ...issue }} }} }} {ISSUE}"
MERGE_REQUESTS = f"""
query Own {{ mergeRequests(first: 20) {{ nodes {{
  databaseId iid title state sourceBranch targetBranch createdAt author {{ ...user }}
}} }} }} {_USER}
"""
PROJECTS = f"""
query Projects {{ projects(filter: {{membership: true, archived: null}}, first: 20) {{ nodes {{
  databaseId name path fullPath description visibilityLevel createdAt openIssuesCount owner {{ ...user }}
}} }} }} {_USER}
"""
GROUP_PROJECTS = f"""
query Projects {{ group(path: "{GROUP}") {{ projects(first: 20) {{ nodes {{
  databaseId name path fullPath description visibilityLevel createdAt openIssuesCount
}} }} }} }}
"""
ACCEPT = f"""
mutation Accept($input: AcceptMergeRequestInput!) {{ acceptMergeRequest(input: $input) {{
  mergeRequest {{ title state author {{ ...user }} }} userErrors {{ code }}
}} }} {_USER}
"""
_ACCEPTED = ("title", "state", "author")
_COMPARED = ("title", "description", "state", "author")
"""The compared fields of a written issue; the others differ between the sides."""


@dataclass(frozen=True)
class WriteQuestion:
    """Requests that are sent in turn, and how the content is read from the answer to the first; `connections` send them.

    If `reads` is given, only the first `reads` requests are timed.
    """

    requests: tuple[LoadRequest, ...]
    read: Callable[[Any], Any]
    connections: int = 32
    reads: int | None = None

    def content(self, answer: Any) -> Any:
        """Raises UnfairError for an answer of another shape."""
        try:
            return questions.normalize(self.read(answer))
        except (KeyError, TypeError, IndexError) as error:
            raise UnfairError(f"no content in {json.dumps(answer)[:1000]}") from error


def _compared(issue: dict[str, Any]) -> dict[str, Any]:
    return {name: issue[name] for name in _COMPARED}


def graph_questions(data: Dataset) -> dict[str, WriteQuestion]:
    def ask(text: str, variables: Sequence[dict[str, Any]], read: Callable[[Any], Any]) -> WriteQuestion:
        bodies = tuple(json.dumps({"query": " ".join(text.split()), "variables": each}) for each in variables)
        return WriteQuestion((LoadRequest("POST", ("/graphql",), data.token, bodies[0], 200, bodies),), lambda answer: read(answer["data"]))

    created = [{"input": {"projectPath": str(each), "title": TITLE, "description": DESCRIPTIONS[0]}} for each in data.projects]
    updated = [
        {"input": {"projectPath": str(project), "databaseId": issue, "description": description}}
        for description in DESCRIPTIONS
        for project, issue in data.issues
    ]
    of_table = questions.graphql_questions(data)
    return {
        "create": ask(CREATE, created, lambda found: _compared(found["createIssue"]["issue"])),
        "update": ask(UPDATE, updated, lambda found: _compared(found["updateIssue"]["issue"])),
        "issues": ask(ISSUES, [{}], lambda found: found["issues"]),
        "merge_requests": ask(MERGE_REQUESTS, [{}], lambda found: found["mergeRequests"]),
        "projects": ask(PROJECTS, [{}], lambda found: found["projects"]),
        "group": ask(GROUP_PROJECTS, [{}], lambda found: found["group"]["projects"]),
        "mixed": _mix(of_table["list"], of_table["note"]),
        "note": _post(of_table["note"]),
    }


def v3_questions(data: Dataset) -> dict[str, WriteQuestion]:
    """The questions to REST v3, without the lists of the caller, of which v3 shows other fields."""
    return _route_writes(data, V3, 200, lambda issue: _compared({**issue, "author": questions.v3_user(issue["author"])})) | {
        "mixed": _mix(questions.v3_questions(data)["list"], questions.v3_questions(data)["note"]),
        "note": _post(questions.v3_questions(data)["note"]),
    }


def floor_questions(data: Dataset) -> dict[str, WriteQuestion]:
    def get(path: str) -> WriteQuestion:
        return WriteQuestion((LoadRequest("GET", (path,), data.token),), lambda answer: answer)

    return _route_writes(data, "", 201, _compared) | {
        "issues": get("/issues"),
        "merge_requests": get("/merge_requests"),
        "projects": get("/projects"),
        "group": get(f"/groups/{GROUP}/projects"),
        "mixed": _mix(questions.route_questions(data)["list"], questions.route_questions(data)["note"]),
        "note": _post(questions.route_questions(data)["note"]),
    }


def accept_questions(data: Dataset, project: int, merge_requests: Sequence[int]) -> dict[str, WriteQuestion]:
    """The questions that accept these merge requests, by side. Each can be accepted once, so they are divided among the sides."""
    count = len(SIDES)
    of_graph, of_v3, of_floor, of_floor_v3 = (merge_requests[number::count] for number in range(count))
    inputs = [{"input": {"projectPath": str(project), "databaseId": each}} for each in of_graph]
    bodies = tuple(json.dumps({"query": " ".join(ACCEPT.split()), "variables": each}) for each in inputs)

    def put(base: str, ids: Sequence[int]) -> LoadRequest:
        return LoadRequest("PUT", tuple(f"{base}/projects/{project}/merge_requests/{each}/merge" for each in ids), data.token, "{}")

    def read(found: dict[str, Any]) -> dict[str, Any]:
        return {name: found[name] for name in _ACCEPTED}

    def read_v3(found: dict[str, Any]) -> dict[str, Any]:
        return read({**found, "author": questions.v3_user(found["author"])})

    return {
        "forgefront": WriteQuestion(
            (LoadRequest("POST", ("/graphql",), data.token, bodies[0], 200, bodies),),
            lambda answer: read(answer["data"]["acceptMergeRequest"]["mergeRequest"]),
        ),
        "v3": WriteQuestion((put(V3, of_v3),), read_v3),
        "floor": WriteQuestion((put("", of_floor),), read),
        "floor_v3": WriteQuestion((put(V3, of_floor_v3),), read_v3),
    }


def _route_writes(data: Dataset, base: str, created_status: int, read: Callable[[Any], Any]) -> dict[str, WriteQuestion]:
    create = json.dumps({"title": TITLE, "description": DESCRIPTIONS[0]})
    paths = tuple(f"{base}/projects/{project}/issues/{issue}" for project, issue in data.issues)
    # Consecutive requests are about different issues, as those to the graph.
    shifted = (paths, paths[len(paths) // 2 :] + paths[: len(paths) // 2])
    updates = tuple(
        LoadRequest("PUT", each, data.token, json.dumps({"description": description}))
        for each, description in zip(shifted, DESCRIPTIONS, strict=True)
    )
    created = LoadRequest("POST", tuple(f"{base}/projects/{each}/issues" for each in data.projects), data.token, create, created_status)
    return {"create": WriteQuestion((created,), read), "update": WriteQuestion(updates, read)}


def _post(question: questions.Question) -> WriteQuestion:
    return WriteQuestion((question.request,), lambda answer: {name: question.content(answer)[name] for name in ("body", "author")})


def _mix(reads: questions.Question, write: questions.Question) -> WriteQuestion:
    return WriteQuestion((*(reads.request for _ in range(READS_PER_WRITE)), write.request), reads.content, 64, READS_PER_WRITE)

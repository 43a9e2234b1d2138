"""The questions of the table: the requests for each side, and how answers of different sides are compared.

The GraphQL sides receive the same document; sides with routes answer the same content by path. `Question.content` normalizes every answer:
connections become lists, enum values are in lower case, timestamps are seconds since 1970.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.dataset.seed import Dataset
from benchmarks.harness.answers import UnfairError
from benchmarks.harness.load import LoadRequest

V3 = "/api/v3"
BODY = "A note that the benchmark wrote, of a usual length for a note."

_USER = "fragment user on User { databaseId username name state }"
ISSUE = f"""
fragment issue on Issue {{
  databaseId iid title description state createdAt updatedAt labels
  milestone {{ databaseId iid title state dueDate }} author {{ ...user }} assignee {{ ...user }}
}}
{_USER}
"""
LIST = f"query List($path: String!) {{ project(path: $path) {{ issues(first: 20) {{ nodes {{ ...issue }} }} }} }} {ISSUE}"
ONE = f"query One($path: String!, $id: Int!) {{ project(path: $path) {{ issue(databaseId: $id) {{ ...issue }} }} }} {ISSUE}"
JOIN = f"""
query Join($path: String!) {{
  project(path: $path) {{
    mergeRequests(first: 20) {{
      nodes {{
        databaseId iid title state sourceBranch targetBranch createdAt
        author {{ ...user }}
        headCommit {{
          oid title authorName committedAt
          builds(first: 5) {{ nodes {{ databaseId name stage status startedAt finishedAt }} }}
        }}
      }}
    }}
  }}
}}
{_USER}
"""
NOTE = f"""
mutation Note($input: CreateNoteInput!) {{
  createNote(input: $input) {{ note {{ databaseId body createdAt author {{ ...user }} }} }}
}}
{_USER}
"""

PROJECTS = f"""
query Projects {{
  projects(filter: {{membership: true, archived: null}}, first: 20) {{
    nodes {{
      databaseId name path fullPath description visibilityLevel archived createdAt lastActivityAt
      starCount forkCount openIssuesCount
      owner {{ ...user }} namespace {{ databaseId name path }}
      viewerMembership {{ projectLevelValue groupLevelValue }}
    }}
  }}
}}
{_USER}
"""

# The names that PostGraphile generates from the tables, with aliases that give the names of the other sides.
_GENERATED_USER = "fragment user on User { databaseId: rowId username name state }"
_GENERATED_ISSUE = f"""
fragment issue on Issue {{
  databaseId: rowId iid title description state createdAt updatedAt
  labels: issueLabelsByIssueId {{ nodes {{ label: labelByLabelId {{ title }} }} }}
  milestone: milestoneByMilestoneId {{ databaseId: rowId iid title state dueDate }}
  author: userByAuthorId {{ ...user }} assignee: userByAssigneeId {{ ...user }}
}}
{_GENERATED_USER}
"""
GENERATED_LIST = f"""
query List($id: Int!) {{
  project: projectByRowId(rowId: $id) {{
    issues: issuesByProjectId(first: 20, orderBy: [CREATED_AT_DESC, ROW_ID_DESC]) {{ nodes {{ ...issue }} }}
  }}
}}
{_GENERATED_ISSUE}
"""
GENERATED_ONE = f"""
query One($project: Int!, $id: Int!) {{
  project: projectByRowId(rowId: $project) {{ issuesByProjectId(condition: {{rowId: $id}}, first: 1) {{ nodes {{ ...issue }} }} }}
}}
{_GENERATED_ISSUE}
"""
GENERATED_JOIN = f"""
query Join($id: Int!) {{
  project: projectByRowId(rowId: $id) {{
    mergeRequests: mergeRequestsByProjectId(first: 20, orderBy: [CREATED_AT_DESC, ROW_ID_DESC]) {{
      nodes {{
        databaseId: rowId iid title state sourceBranch targetBranch createdAt
        author: userByAuthorId {{ ...user }}
        headCommit {{
          oid title authorName committedAt
          builds(first: 5, orderBy: [ROW_ID_DESC], condition: {{currentId: null}}) {{
            nodes {{ databaseId: rowId name stage status startedAt finishedAt }}
          }}
        }}
      }}
    }}
  }}
}}
{_GENERATED_USER}
"""


@dataclass(frozen=True)
class Question:
    """One question to one side: the requests, and the function that takes the content from the JSON of an answer."""

    request: LoadRequest
    read: Callable[[Any], Any]

    def content(self, answer: Any) -> Any:
        """Raises UnfairError for an answer of another shape."""
        try:
            return normalize(self.read(answer))
        except (KeyError, TypeError, IndexError) as error:
            raise UnfairError(f"no content in {json.dumps(answer)[:1000]}") from error


TITLES = {
    "list": "list 20 issues",
    "one": "one issue",
    "join": "20 merge requests + author + head commit + 5 builds",
    "note": "post a note",
    "projects": "20 projects of the caller + permissions + counts",
}
"""The questions by key, in the order of the table."""


def graphql_questions(data: Dataset) -> dict[str, Question]:
    """The questions to a side whose schema has the names of Forgefront's."""
    inputs = [{"projectPath": str(project), "issueDatabaseId": issue, "body": BODY} for project, issue in data.issues]
    return {
        "list": _graph(data, LIST, ({"path": str(project)} for project in data.projects), lambda data: data["project"]["issues"]),
        "one": _graph(
            data, ONE, ({"path": str(project), "id": issue} for project, issue in data.issues), lambda data: data["project"]["issue"]
        ),
        "join": _graph(
            data, JOIN, ({"path": str(project)} for project in data.history_projects), lambda data: data["project"]["mergeRequests"]
        ),
        "note": _graph(data, NOTE, ({"input": each} for each in inputs), lambda data: data["createNote"]["note"]),
        "projects": _graph(data, PROJECTS, [{}], lambda data: data["projects"]),
    }


def generated_graphql_questions(data: Dataset) -> dict[str, Question]:
    """The questions to PostGraphile, which has no mutations here."""
    ones = ({"project": project, "id": issue} for project, issue in data.issues)
    return {
        "list": _graph(data, GENERATED_LIST, ({"id": project} for project in data.projects), _generated_issues),
        "one": _graph(
            data, GENERATED_ONE, ones, lambda data: _generated_issues({"project": {"issues": _issues_by_project(data)}})["nodes"][0]
        ),
        "join": _graph(
            data, GENERATED_JOIN, ({"id": project} for project in data.history_projects), lambda data: data["project"]["mergeRequests"]
        ),
    }


def route_questions(data: Dataset) -> dict[str, Question]:
    """The questions to a side that has routes."""

    def get(paths: Iterable[str]) -> Question:
        return Question(LoadRequest("GET", tuple(paths), data.token), lambda answer: answer)

    notes = tuple(f"/projects/{project}/issues/{issue}/notes" for project, issue in data.issues)
    return {
        "list": get(f"/projects/{project}/issues" for project in data.projects),
        "one": get(f"/projects/{project}/issues/{issue}" for project, issue in data.issues),
        "join": get(f"/projects/{project}/merge_requests" for project in data.history_projects),
        "note": Question(LoadRequest("POST", notes, data.token, json.dumps({"body": BODY}), 201), lambda answer: answer),
        "projects": get(["/projects"]),
    }


def v3_questions(data: Dataset) -> dict[str, Question]:
    """The questions to the service's REST v3, whose answers also have other fields and the total. It has no call for the join."""

    def get(paths: Iterable[str], read: Callable[[Any], Any]) -> Question:
        return Question(LoadRequest("GET", tuple(f"{V3}{path}" for path in paths), data.token), read)

    notes = tuple(f"{V3}/projects/{project}/issues/{issue}/notes" for project, issue in data.issues)
    return {
        "list": get((f"/projects/{project}/issues" for project in data.projects), lambda answer: [_v3_issue(row) for row in answer]),
        "one": get((f"/projects/{project}/issues/{issue}" for project, issue in data.issues), _v3_issue),
        "note": Question(LoadRequest("POST", notes, data.token, json.dumps({"body": BODY}), 201), _v3_note),
        "projects": get(["/projects"], lambda answer: [_v3_project(row) for row in answer]),
    }


_V3_NAMES = {"databaseId": "id", "createdAt": "created_at", "updatedAt": "updated_at", "dueDate": "due_date"}


def _rename_v3(row: Any, *names: str) -> Any:
    """Fields of a row of v3 under the names of the graph."""
    return None if row is None else {name: row[_V3_NAMES.get(name, name)] for name in names}


def v3_user(row: Any) -> Any:
    """A user of v3 under the names of the graph."""
    return _rename_v3(row, "databaseId", "username", "name", "state")


def _v3_issue(row: Any) -> Any:
    own = _rename_v3(row, "databaseId", "iid", "title", "description", "state", "createdAt", "updatedAt", "labels")
    milestone = _rename_v3(row["milestone"], "databaseId", "iid", "title", "state", "dueDate")
    return {**own, "milestone": milestone, "author": v3_user(row["author"]), "assignee": v3_user(row["assignee"])}


def _v3_note(row: Any) -> Any:
    return {**_rename_v3(row, "databaseId", "body", "createdAt"), "author": v3_user(row["author"])}


_V3_PROJECT_NAMES = {
    "fullPath": "path_with_namespace",
    "visibilityLevel": "visibility_level",
    "lastActivityAt": "last_activity_at",
    "starCount": "star_count",
    "forkCount": "forks_count",
    "openIssuesCount": "open_issues_count",
}


def _v3_project(row: Any) -> Any:
    def level(key: str) -> Any:
        return None if row["permissions"][key] is None else row["permissions"][key]["access_level"]

    return {
        **_rename_v3(row, "databaseId", "name", "path", "description", "archived", "createdAt"),
        **{name: row[key] for name, key in _V3_PROJECT_NAMES.items()},
        "owner": v3_user(row["owner"]),
        "namespace": _rename_v3(row["namespace"], "databaseId", "name", "path"),
        "viewerMembership": {"projectLevelValue": level("project_access"), "groupLevelValue": level("group_access")},
    }


def _graph(data: Dataset, text: str, variables: Iterable[dict[str, Any]], read: Callable[[Any], Any]) -> Question:
    compact = " ".join(text.split())
    bodies = tuple(json.dumps({"query": compact, "variables": each}) for each in variables)

    def found(answer: Any) -> Any:
        if answer.get("errors"):
            raise UnfairError(f"errors: {json.dumps(answer['errors'])[:1000]}")
        return read(answer["data"])

    return Question(LoadRequest("POST", ("/graphql",), data.token, bodies[0], 200, bodies), found)


def _issues_by_project(data: Any) -> Any:
    return data["project"]["issuesByProjectId"]


def _generated_issues(data: Any) -> Any:
    """The issues with labels as sorted titles: PostGraphile cannot sort a list by a column of another table."""
    issues = data["project"]["issues"]
    for issue in issues["nodes"]:
        issue["labels"] = sorted(each["label"]["title"] for each in issue["labels"]["nodes"])
    return issues


def normalize(value: Any, key: str = "") -> Any:
    """The value in the form in which answers are compared: see the docstring of the module."""
    if isinstance(value, dict):
        return normalize(value["nodes"]) if value.keys() == {"nodes"} else {name: normalize(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, str) and key in ("state", "status"):
        return value.lower()
    if isinstance(value, str) and key.endswith("At"):
        timestamp = datetime.fromisoformat(value)
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).timestamp()
    return value


def compare_contents(key: str, name: str, ours: Any, theirs: Any) -> None:
    """Compares the answers of Forgefront and another side. Raises UnfairError if they differ, or if ours has too few rows for the case."""
    if key == "join" and [len(row["headCommit"]["builds"]) for row in ours] != [5] * 20:
        raise UnfairError("join: not twenty merge requests with five builds each")
    if key == "list" and len(ours) != 20:
        raise UnfairError("list: not twenty issues")
    if key == "projects" and not any(row["openIssuesCount"] for row in ours):
        raise UnfairError("projects: none with open issues")
    if key == "note":
        # Each side wrote a row of its own.
        ours, theirs = ({**content, "databaseId": None, "createdAt": None} for content in (ours, theirs))
    if ours != theirs:
        raise UnfairError(f"{key}: {name} has another answer\nours: {json.dumps(ours)[:1500]}\n{name}: {json.dumps(theirs)[:1500]}")

"""Rows of every form over the fake graph, written like the rows and operations of a noun."""

from rest_v3.requests.params import boolean, choice, date, integer, integers, names, text
from rest_v3.reshape import show_keys_to_admins, wrap_in_list
from rest_v3.route import Route

SAMPLE_OPERATIONS = """
query ProjectIssues($id: String!, $state: [IssueState!], $labels: [String!], $iid: [Int!], $first: Int!, $offset: Int!) {
  project(path: $id) {
    issues(first: $first, offset: $offset, state: $state, labels: $labels, iids: $iid) { totalCount nodes { ...issue } }
  }
}

query EndlessIssues($id: String!, $first: Int!, $offset: Int!) {
  project(path: $id) { issues(first: $first, offset: $offset) { pageInfo { hasNextPage } nodes { id: databaseId } } }
}

query ProjectIssue($id: String!, $issue_id: Int!) {
  project(path: $id) { issue(databaseId: $issue_id) { ...issue history watchers { nodes { username } } } }
}

query ProjectNoteable($id: String!, $issue_id: Int!) {
  project(path: $id) { noteable(databaseId: $issue_id) { state ... on Issue { created_at: createdAt } } }
}

query ProjectCommit($id: String!, $sha: String!) {
  project(path: $id) { commit(sha: $sha) { title } }
}

query ProjectBuild($id: String!, $issue_id: Int!) {
  project(path: $id) { issue(databaseId: $issue_id) { id: databaseId build } }
}

query ProjectBroken($id: String!, $issue_id: Int!) {
  project(path: $id) { issue(databaseId: $issue_id) { id: databaseId broken } }
}

query MayUpdateIssue($id: String!, $issue_id: Int!) {
  project(path: $id) { issue(databaseId: $issue_id) { viewerCan { update } } }
}

mutation UpdateIssue(
  $id: String!, $issue_id: Int!, $title: String, $due_date: String, $assignee_id: Int, $labels: [String!],
  $state_event: StateEvent, $confidential: Boolean
) {
  updateIssue(input: {
    projectPath: $id, databaseId: $issue_id, title: $title, dueDate: $due_date, assigneeId: $assignee_id, labels: $labels,
    stateEvent: $state_event, confidential: $confidential
  }) {
    issue { ...issue }
    userErrors { field message code }
  }
}

mutation NameIssue($id: String!, $issue_id: Int!, $title: String!, $note: String) {
  updateIssue(input: {projectPath: $id, databaseId: $issue_id, title: $title, dueDate: $note}) {
    issue { title }
    userErrors { field message code }
  }
}

mutation TouchIssue($id: String!, $issue_id: Int!) {
  updateIssue(input: {projectPath: $id, databaseId: $issue_id}) { issue { title } userErrors { field message code } }
}

query User($id: Int!) {
  viewer { isAdmin }
  user(databaseId: $id) { id: databaseId username email }
}

query CurrentUser { viewer { id: databaseId username } }

query Fail($code: String!, $reason: String) { fail(code: $code, reason: $reason) }

fragment issue on Issue {
  id: databaseId
  iid
  title
  state
  labels
  created_at: createdAt
  closed_at: closedAt
  author { ...person }
}

fragment person on User { username }

fragment unused on User { username }
"""

ISSUE = (text("id", required=True), integer("issue_id", required=True))

SAMPLE_ROUTES = (
    Route(
        call="GET /projects/:id/issues",
        params=(
            text("id", required=True),
            choice("state", "opened", "closed", lenient=True),
            names("labels"),
            integers("iid"),
        ),
        operation="ProjectIssues",
        result_path="project.issues",
        shape="Issue",
        section="Issues",
    ),
    Route(call="GET /projects/:id/endless", params=ISSUE[:1], operation="EndlessIssues", result_path="project.issues", has_total=False),
    Route(
        call="GET /projects/:id/whole",
        params=ISSUE[:1],
        operation="EndlessIssues",
        name="WholeIssues",
        result_path="project.issues",
        is_unpaged=True,
    ),
    Route(call="GET /projects/:id/issues/:issue_id", params=ISSUE, operation="ProjectIssue", result_path="project.issue", shape="Issue"),
    Route(call="GET /projects/:id/noteables/:issue_id", params=ISSUE, operation="ProjectNoteable", result_path="project.noteable"),
    Route(
        call="GET /projects/:id/repository/commits/:sha",
        params=(text("id", required=True), text("sha", required=True)),
        operation="ProjectCommit",
        result_path="project.commit",
    ),
    Route(call="GET /projects/:id/builds/:issue_id", params=ISSUE, operation="ProjectBuild", result_path="project.issue"),
    Route(call="GET /projects/:id/broken/:issue_id", params=ISSUE, operation="ProjectBroken", result_path="project.issue"),
    Route(
        call="PUT /projects/:id/issues/:issue_id",
        params=(
            *ISSUE,
            text("title"),
            date("due_date"),
            integer("assignee_id", blank_clears=True),
            names("labels", blank_clears=True),
            choice("state_event", "close", "reopen"),
            boolean("confidential", aliases=("secret",)),
        ),
        operation="UpdateIssue",
        result_path="updateIssue.issue",
        guard="MayUpdateIssue",
        needs_one_of=("title", "due_date", "assignee_id", "labels", "state_event", "confidential"),
        shape="Issue",
    ),
    Route(
        call="POST /projects/:id/issues/:issue_id/names",
        params=(*ISSUE, text("title", required=True), text("note")),
        operation="NameIssue",
        result_path="updateIssue.issue",
        errors={"FORBIDDEN": 401, "TAKEN": 404, "CONFLICT": (422, "No room")},
        reshape=wrap_in_list,
    ),
    Route(
        call="DELETE /projects/:id/issues/:issue_id/names",
        params=ISSUE,
        operation="TouchIssue",
        name="DeleteNames",
        result_path="updateIssue.issue",
        errors={"NOT_FOUND": 200},
    ),
    Route(
        call="PUT /projects/:id/merge_requests/:issue_id/touch",
        params=ISSUE,
        operation="TouchIssue",
        not_found_noun="Label",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id",
        params=(text("id", required=True), integer("merge_request_id", required=True)),
        operation="MergeRequest",
        result_path="project.issue",
    ),
    Route(
        call="DELETE /projects/:id/issues/:issue_id",
        params=ISSUE,
        operation="Viewer",
        rejection_status=405,
    ),
    Route(
        call="GET /users/:id",
        params=(integer("id", required=True),),
        operation="User",
        result_path="user",
        not_found_noun="User",
        reshape=show_keys_to_admins("email"),
    ),
    Route(call="GET /user", operation="CurrentUser", result_path="viewer", no_store=True),
    Route(
        call="GET /failures/:code",
        params=(text("code", required=True), text("reason")),
        operation="Fail",
        result_path="fail",
        allows_anonymous=True,
    ),
)

SAMPLE_OPERATIONS += """
query MergeRequest($id: String!, $merge_request_id: Int!) {
  project(path: $id) { issue(databaseId: $merge_request_id) { iid } }
}
"""

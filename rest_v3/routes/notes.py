"""The section Notes of the interface document."""

from rest_v3.params import integer, text
from rest_v3.route import Route

ISSUE = (text("id", required=True), integer("issue_id", required=True))
NOTE = (*ISSUE, integer("note_id", required=True))
BODY = text("body", required=True)

NOTES = (
    Route(
        call="GET /projects/:id/issues/:issue_id/notes",
        params=ISSUE,
        operation="IssueNotes",
        gives="project.issue.notes",
        shape="Note",
        section="Notes",
        summary="The notes under an issue",
    ),
    Route(
        call="GET /projects/:id/issues/:issue_id/notes/:note_id",
        params=NOTE,
        operation="IssueNote",
        gives="project.issue.note",
        shape="Note",
        section="Notes",
        summary="One note under an issue",
    ),
    Route(
        call="POST /projects/:id/issues/:issue_id/notes",
        params=(*ISSUE, BODY),
        operation="CreateIssueNote",
        gives="createNote.note",
        guard="MayCreateIssueNote",
        shape="Note",
        section="Notes",
        summary="Write a note under an issue",
    ),
    Route(
        call="PUT /projects/:id/issues/:issue_id/notes/:note_id",
        params=(*NOTE, BODY),
        operation="UpdateIssueNote",
        gives="updateNote.note",
        guard="MayUpdateIssueNote",
        shape="Note",
        section="Notes",
        summary="Rewrite a note under an issue",
    ),
)

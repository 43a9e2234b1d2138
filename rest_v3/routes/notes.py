"""The section Notes of the interface document."""

from rest_v3.requests.params import integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
ISSUE = (PROJECT, integer("issue_id", required=True))
SNIPPET = (PROJECT, integer("snippet_id", required=True))
MERGE_REQUEST = (PROJECT, integer("merge_request_id", required=True))
NOTE = integer("note_id", required=True)
BODY = text("body", required=True)
VOTE_TAKEN = {"TAKEN": 404}
"""The error if the caller has cast the same vote before (docs/wire-facts.md 6)."""

NOTES = (
    Route(
        call="GET /projects/:id/issues/:issue_id/notes",
        params=ISSUE,
        operation="IssueNotes",
        result_path="project.issue.notes",
        shape="Note",
        section="Notes",
        summary="List the notes on an issue",
    ),
    Route(
        call="GET /projects/:id/issues/:issue_id/notes/:note_id",
        params=(*ISSUE, NOTE),
        operation="IssueNote",
        result_path="project.issue.note",
        shape="Note",
        section="Notes",
        summary="Get a note on an issue",
    ),
    Route(
        call="POST /projects/:id/issues/:issue_id/notes",
        params=(*ISSUE, BODY),
        operation="CreateIssueNote",
        result_path="createNote.note",
        guard="MayCreateIssueNote",
        errors=VOTE_TAKEN,
        shape="Note",
        section="Notes",
        summary="Create a note on an issue",
    ),
    Route(
        call="PUT /projects/:id/issues/:issue_id/notes/:note_id",
        params=(*ISSUE, NOTE, BODY),
        operation="UpdateIssueNote",
        result_path="updateNote.note",
        guard="MayUpdateIssueNote",
        shape="Note",
        section="Notes",
        summary="Update a note on an issue",
    ),
    Route(
        call="GET /projects/:id/snippets/:snippet_id/notes",
        params=SNIPPET,
        operation="SnippetNotes",
        result_path="project.snippet.notes",
        shape="Note",
        section="Notes",
        summary="List the notes on a snippet",
    ),
    Route(
        call="GET /projects/:id/snippets/:snippet_id/notes/:note_id",
        params=(*SNIPPET, NOTE),
        operation="SnippetNote",
        name="SnippetNote",
        result_path="project.snippet.note.snippet",
        shape="Snippet",
        section="Notes",
        summary="Get a note on a snippet",
    ),
    Route(
        call="POST /projects/:id/snippets/:snippet_id/notes",
        params=(*SNIPPET, BODY),
        operation="CreateSnippetNote",
        result_path="createNote.note",
        guard="MayCreateSnippetNote",
        shape="Note",
        section="Notes",
        summary="Create a note on a snippet",
    ),
    Route(
        call="PUT /projects/:id/snippets/:snippet_id/notes/:note_id",
        params=(*SNIPPET, NOTE, BODY),
        operation="UpdateSnippetNote",
        result_path="updateNote.note",
        guard="MayUpdateSnippetNote",
        shape="Note",
        section="Notes",
        summary="Update a note on a snippet",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/notes",
        params=MERGE_REQUEST,
        operation="MergeRequestNotes",
        result_path="project.mergeRequest.notes",
        shape="Note",
        section="Notes",
        summary="List the notes on a merge request",
    ),
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/notes/:note_id",
        params=(*MERGE_REQUEST, NOTE),
        operation="MergeRequestNote",
        result_path="project.mergeRequest.note",
        shape="Note",
        section="Notes",
        summary="Get a note on a merge request",
    ),
    Route(
        call="POST /projects/:id/merge_requests/:merge_request_id/notes",
        params=(*MERGE_REQUEST, BODY),
        operation="CreateMergeRequestNote",
        result_path="createNote.note",
        guard="MayCreateMergeRequestNote",
        errors=VOTE_TAKEN,
        shape="Note",
        section="Notes",
        summary="Create a note on a merge request",
    ),
    Route(
        call="PUT /projects/:id/merge_requests/:merge_request_id/notes/:note_id",
        params=(*MERGE_REQUEST, NOTE, BODY),
        operation="UpdateMergeRequestNote",
        result_path="updateNote.note",
        guard="MayUpdateMergeRequestNote",
        shape="Note",
        section="Notes",
        summary="Update a note on a merge request",
    ),
)

COMMENTS = (
    Route(
        call="GET /projects/:id/merge_requests/:merge_request_id/comments",
        params=MERGE_REQUEST,
        operation="MergeRequestComments",
        result_path="project.mergeRequest.notes",
        shape="MRNote",
        section="Notes",
        summary="List the notes on a merge request in their older form",
    ),
    Route(
        call="POST /projects/:id/merge_requests/:merge_request_id/comments",
        params=(*MERGE_REQUEST, text("note", required=True)),
        operation="CreateMergeRequestComment",
        result_path="createNote.note",
        guard="MayCreateMergeRequestNote",
        shape="MRNote",
        section="Notes",
        summary="Create a note on a merge request, returned in its older form",
    ),
)
"""The routes of notes before they had ids (docs/wire-facts.md 4.7)."""

"""Snippets of projects (docs/wire-facts.md 14)."""

from rest_v3.requests.params import integer, text
from rest_v3.reshape import add_keys
from rest_v3.route import Route
from rest_v3.routes.settings import LEVELS, VISIBILITIES

PROJECT = text("id", required=True)
SNIPPET = (PROJECT, integer("snippet_id", required=True))

SNIPPETS = (
    Route(
        call="GET /projects/:id/snippets",
        params=(PROJECT,),
        operation="ProjectSnippets",
        result_path="project.snippets",
        shape="ProjectSnippet",
        section="Project snippets",
        summary="List the snippets of a project that the caller may see",
    ),
    Route(
        call="GET /projects/:id/snippets/:snippet_id",
        params=SNIPPET,
        operation="ProjectSnippet",
        result_path="project.snippet",
        shape="ProjectSnippet",
        section="Project snippets",
        summary="Get a snippet",
    ),
    Route(
        call="GET /projects/:id/snippets/:snippet_id/raw",
        params=SNIPPET,
        operation="ProjectSnippetContent",
        result_path="project.snippet.content",
        is_text=True,
        section="Project snippets",
        summary="Get the content of a snippet as text",
    ),
    Route(
        call="POST /projects/:id/snippets",
        params=(
            PROJECT,
            text("title", required=True),
            text("file_name", required=True),
            text("code", required=True),
            integer("visibility_level", required=True, meanings=LEVELS, allowed=VISIBILITIES),
        ),
        operation="CreateProjectSnippet",
        result_path="createSnippet.snippet",
        guard="MayCreateSnippet",
        shape="ProjectSnippet",
        section="Project snippets",
        summary="Create a snippet",
    ),
    Route(
        call="PUT /projects/:id/snippets/:snippet_id",
        params=(
            *SNIPPET,
            text("title"),
            text("file_name"),
            text("code"),
            integer("visibility_level", meanings=LEVELS, allowed=VISIBILITIES),
        ),
        operation="UpdateProjectSnippet",
        result_path="updateSnippet.snippet",
        guard="MayUpdateSnippet",
        shape="ProjectSnippet",
        section="Project snippets",
        summary="Update a snippet",
    ),
    Route(
        call="DELETE /projects/:id/snippets/:snippet_id",
        params=SNIPPET,
        operation="DeleteProjectSnippet",
        result_path="deleteSnippet.snippet",
        not_found_noun={"Snippet": "Snippet"},
        reshape=add_keys(type="ProjectSnippet"),
        shape="DeletedProjectSnippet",
        section="Project snippets",
        summary="Delete a snippet",
    ),
)

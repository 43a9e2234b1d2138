"""Tags and their releases, which are not in the interface document (docs/wire-facts.md 14)."""

from rest_v3.requests.params import text
from rest_v3.route import Route

PROJECT = text("id", required=True)
TAG = (PROJECT, text("tag_name", required=True, spans_segments=True, description="The name of the tag; slashes may be escaped."))
DESCRIPTION = text("description", required=True, description="The release notes.")
NO_TAG = (404, "Tag does not exist")
SECTION = "Tags"

TAGS = (
    Route(
        call="GET /projects/:id/repository/tags",
        params=(PROJECT,),
        operation="ProjectTags",
        result_path="project.tags",
        is_unpaged=True,
        shape="Tag",
        section=SECTION,
        summary="List the tags, by name downwards",
    ),
    Route(
        call="POST /projects/:id/repository/tags",
        params=(
            PROJECT,
            text("tag_name", required=True, description="The name of the new tag."),
            text("ref", required=True, description="The branch, tag or commit id to tag."),
            text("message", description="The message, which makes it an annotated tag."),
            text("release_description", description="Release notes."),
        ),
        operation="CreateTag",
        result_path="createTag.tag",
        guard="MayPush",
        errors={
            "INVALID name": (400, "Tag name invalid"),
            "INVALID ref": (400, "Invalid reference name"),
            "TAKEN": (400, "Tag already exists"),
            "CONFLICT": (400, "{message}"),
        },
        shape="Tag",
        section=SECTION,
        summary="Create a tag",
    ),
    Route(
        call="DELETE /projects/:id/repository/tags/:tag_name",
        params=TAG,
        operation="DeleteTag",
        result_path="deleteTag.tag",
        errors={"NOT_FOUND Tag": (404, "No such tag")},
        shape="DeletedTag",
        section=SECTION,
        summary="Delete a tag",
    ),
    Route(
        call="POST /projects/:id/repository/tags/:tag_name/release",
        params=(*TAG, DESCRIPTION),
        operation="CreateRelease",
        result_path="createRelease.release",
        guard="MayCreateRelease",
        errors={"NOT_FOUND Tag": NO_TAG},
        shape="Release",
        section=SECTION,
        summary="Write the release notes of a tag",
    ),
    Route(
        call="PUT /projects/:id/repository/tags/:tag_name/release",
        params=(*TAG, DESCRIPTION),
        operation="UpdateRelease",
        result_path="updateRelease.release",
        guard="MayUpdateRelease",
        errors={"NOT_FOUND Tag": NO_TAG, "NOT_FOUND Release": (404, "Release does not exist")},
        shape="Release",
        section=SECTION,
        summary="Change the release notes of a tag",
    ),
)

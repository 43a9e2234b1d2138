"""The route of the section Builds that responds with a file."""

from rest_v3.requests.params import integer, text
from rest_v3.route import Route

ARTIFACTS = (
    Route(
        call="GET /projects/:id/builds/:build_id/artifacts",
        params=(text("id", required=True), integer("build_id", required=True)),
        operation="BuildArtifact",
        result_path="project.artifact",
        file_key="stream",
        not_found_noun="",
        section="Builds",
        summary="Download the artifacts file of a build",
    ),
)

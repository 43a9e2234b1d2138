"""Files attached to notes, which are not in the interface document (docs/wire-facts.md 14)."""

from rest_v3.requests.params import file, text
from rest_v3.route import Route

UPLOADS = (
    Route(
        call="POST /projects/:id/uploads",
        params=(text("id", required=True), file("file", description="The file, with its name; other fields come before it.")),
        operation="CreateUpload",
        result_path="createUpload.upload",
        guard="MayUpload",
        upload_limit_path="project.uploadLimit",
        shape="Upload",
        section="Notes",
        summary="Upload a file to link to from a note",
    ),
)

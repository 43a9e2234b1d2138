"""The section Labels of the interface document."""

from rest_v3.requests.params import text
from rest_v3.route import Route

PROJECT = text("id", required=True)
LABEL = (PROJECT, text("name", required=True))

LABELS = (
    Route(
        call="GET /projects/:id/labels",
        params=(PROJECT,),
        operation="ProjectLabels",
        result_path="project.labels",
        shape="Label",
        section="Labels",
        summary="List the labels of a project",
    ),
    Route(
        call="POST /projects/:id/labels",
        params=(*LABEL, text("color", required=True)),
        operation="CreateLabel",
        result_path="createLabel.label",
        guard="MayAdminLabels",
        error_field_names={"name": "title"},
        status=200,
        shape="Label",
        section="Labels",
        summary="Create a label",
    ),
    Route(
        call="DELETE /projects/:id/labels",
        params=LABEL,
        operation="DeleteLabel",
        result_path="deleteLabel.label",
        guard="MayAdminLabels",
        not_found_noun="Label",
        shape="DeletedLabel",
        section="Labels",
        summary="Delete a label",
    ),
    Route(
        call="PUT /projects/:id/labels",
        params=(*LABEL, text("new_name"), text("color")),
        operation="UpdateLabel",
        result_path="updateLabel.label",
        guard="MayAdminLabel",
        not_found_noun="Label not found",
        error_field_names={"newName": "title"},
        needs_one_of=("new_name", "color"),
        shape="Label",
        section="Labels",
        summary="Rename a label or change its colour",
    ),
)

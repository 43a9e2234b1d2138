"""The section Labels of the interface document."""

from rest_v3.params import text
from rest_v3.route import Route

PROJECT = text("id", required=True)
LABEL = (PROJECT, text("name", required=True))

LABELS = (
    Route(
        call="GET /projects/:id/labels",
        params=(PROJECT,),
        operation="ProjectLabels",
        gives="project.labels",
        shape="Label",
        section="Labels",
        summary="The labels of a project",
    ),
    Route(
        call="POST /projects/:id/labels",
        params=(*LABEL, text("color", required=True)),
        operation="CreateLabel",
        gives="createLabel.label",
        guard="MayAdminLabels",
        fields={"name": "title"},
        status=200,
        shape="Label",
        section="Labels",
        summary="Create a label",
    ),
    Route(
        call="DELETE /projects/:id/labels",
        params=LABEL,
        operation="DeleteLabel",
        gives="deleteLabel.label",
        guard="MayAdminLabels",
        missing="Label",
        shape="DeletedLabel",
        section="Labels",
        summary="Delete a label",
    ),
    Route(
        call="PUT /projects/:id/labels",
        params=(*LABEL, text("new_name"), text("color")),
        operation="UpdateLabel",
        gives="updateLabel.label",
        guard="MayAdminLabel",
        missing="Label not found",
        fields={"newName": "title"},
        needs_one_of=("new_name", "color"),
        shape="Label",
        section="Labels",
        summary="Rename a label or give it another colour",
    ),
)

"""Variables of a project's builds, which GitLab 8.5 served and the interface document leaves out."""

from rest_v3.requests.params import text
from rest_v3.route import Route

PROJECT = text("id", required=True)
VARIABLE = (PROJECT, text("key", required=True, description="Name of the variable."))

VARIABLES = (
    Route(
        call="GET /projects/:id/variables",
        params=(PROJECT,),
        operation="ProjectVariables",
        result_path="project.variables",
        no_store=True,
        shape="Variable",
        section="Variables",
        summary="List the secret variables of a project's builds",
    ),
    Route(
        call="GET /projects/:id/variables/:key",
        params=VARIABLE,
        operation="ProjectVariable",
        result_path="project.variable",
        guard="MayAdminBuilds",
        not_found_noun="Variable",
        no_store=True,
        shape="Variable",
        section="Variables",
        summary="Get a variable",
    ),
    Route(
        call="POST /projects/:id/variables",
        params=(*VARIABLE, text("value", required=True)),
        operation="CreateVariable",
        result_path="createVariable.variable",
        guard="MayAdminBuilds",
        no_store=True,
        shape="Variable",
        section="Variables",
        summary="Create a variable",
    ),
    Route(
        call="PUT /projects/:id/variables/:key",
        params=(*VARIABLE, text("value")),
        operation="UpdateVariable",
        result_path="updateVariable.variable",
        guard="MayUpdateVariable",
        not_found_noun="Variable",
        no_store=True,
        shape="Variable",
        section="Variables",
        summary="Change the value of a variable",
    ),
    Route(
        call="DELETE /projects/:id/variables/:key",
        params=VARIABLE,
        operation="DeleteVariable",
        result_path="deleteVariable.variable",
        guard="MayAdminBuilds",
        not_found_noun="Variable",
        no_store=True,
        shape="Variable",
        section="Variables",
        summary="Delete a variable",
    ),
)

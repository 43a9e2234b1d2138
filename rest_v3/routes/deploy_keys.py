"""Deploy keys of projects (docs/wire-facts.md 14)."""

from rest_v3.requests.params import integer, text
from rest_v3.reshape import add_keys
from rest_v3.route import Route

PROJECT = text("id", required=True)
KEY = (PROJECT, integer("key_id", required=True))

DEPLOY_KEYS = (
    Route(
        call="GET /projects/:id/keys",
        params=(PROJECT,),
        operation="DeployKeys",
        result_path="project.deployKeys",
        is_unpaged=True,
        shape="SSHKey",
        section="Deploy keys",
        summary="List the deploy keys of a project",
    ),
    Route(
        call="GET /projects/:id/keys/:key_id",
        params=KEY,
        operation="DeployKey",
        result_path="project.deployKey",
        shape="SSHKey",
        section="Deploy keys",
        summary="Get a deploy key",
    ),
    Route(
        call="POST /projects/:id/keys",
        # Missing ones are reported as invalid values.
        params=(PROJECT, text("title", default=""), text("key", default="")),
        operation="AddDeployKey",
        result_path="addDeployKey.deployKey",
        guard="MayAdminDeployKeys",
        shape="SSHKey",
        section="Deploy keys",
        summary="Add a deploy key to a project",
    ),
    Route(
        call="DELETE /projects/:id/keys/:key_id",
        params=KEY,
        operation="DeleteDeployKey",
        result_path="deleteDeployKey.deployKey",
        reshape=add_keys(user_id=None, type="DeployKey", public=False),
        shape="DeletedDeployKey",
        section="Deploy keys",
        summary="Delete a deploy key of a project",
    ),
)

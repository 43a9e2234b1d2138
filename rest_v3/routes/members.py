"""Direct members of projects (docs/wire-facts.md 14)."""

from rest_v3.requests.params import integer, text
from rest_v3.reshape import add_keys, merge_child
from rest_v3.route import PathNumber, Route

PROJECT = text("id", required=True)
MEMBER = (PROJECT, integer("user_id", required=True))
LEVEL = integer("access_level", required=True, allowed=(10, 20, 30, 40))
MEMBER_NOT_FOUND = {"User": "User can not be found", "ProjectMember": "User can not be found"}
REVOKED = (200, {"message": "Access revoked", "id": PathNumber("user_id")})

MEMBERS = (
    Route(
        call="GET /projects/:id/members",
        params=(PROJECT, text("query", description="Part of the username.")),
        operation="ProjectMembers",
        result_path="project.members",
        reshape=merge_child("user"),
        shape="ProjectMember",
        section="Project members",
        summary="List the direct members of a project",
    ),
    Route(
        call="GET /projects/:id/members/:user_id",
        params=MEMBER,
        operation="ProjectMember",
        result_path="project.member",
        reshape=merge_child("user"),
        shape="ProjectMember",
        section="Project members",
        summary="Get a direct member of a project",
    ),
    Route(
        call="POST /projects/:id/members",
        params=(PROJECT, integer("user_id", required=True), LEVEL),
        operation="AddProjectMember",
        result_path="addProjectMember.member",
        guard="MayAdminProjectMembers",
        not_found_noun={"User": "User"},
        errors={"INVALID": 422},
        reshape=merge_child("user"),
        shape="ProjectMember",
        section="Project members",
        summary="Add a member to a project; an existing member is returned unchanged",
    ),
    Route(
        call="PUT /projects/:id/members/:user_id",
        params=(*MEMBER, LEVEL),
        operation="UpdateProjectMember",
        result_path="updateProjectMember.member",
        guard="MayUpdateProjectMember",
        not_found_noun=MEMBER_NOT_FOUND,
        errors={"INVALID": 422},
        reshape=merge_child("user"),
        shape="ProjectMember",
        section="Project members",
        summary="Change the access level of a project member",
    ),
    Route(
        call="DELETE /projects/:id/members/:user_id",
        params=MEMBER,
        operation="RemoveProjectMember",
        result_path="removeProjectMember.member",
        errors={"NOT_FOUND User": REVOKED, "NOT_FOUND ProjectMember": REVOKED},
        reshape=add_keys(
            source_type="Project",
            notification_level=3,
            created_by_id=None,
            invite_email=None,
            invite_token=None,
            invite_accepted_at=None,
        ),
        shape="RemovedProjectMember",
        section="Project members",
        summary="Remove a member from a project, if the user is one",
    ),
)

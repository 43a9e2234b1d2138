"""The section Groups of the interface document.

Not in the document: a deletion and a transfer return the record of the namespace, as in a project's entry; the member routes return the
Group member, a removed one as it was.
"""

from rest_v3.requests.params import boolean, choice, integer, text
from rest_v3.reshape import add_keys, merge_child
from rest_v3.route import Route

GROUP = text("id", required=True)
MEMBER = (GROUP, integer("user_id", required=True))
LEVEL = integer("access_level", required=True, allowed=(10, 20, 30, 40, 50), invalid_message="Wrong access level")
MEMBER_NOT_FOUND = "User can not be found"

GROUPS = (
    Route(
        call="GET /groups",
        params=(text("search"),),
        operation="Groups",
        result_path="groups",
        shape="Group",
        section="Groups",
        summary="List the caller's groups; all groups for administrators",
    ),
    Route(
        call="GET /groups/:id",
        params=(GROUP,),
        operation="Group",
        result_path="group",
        shape="GroupDetails",
        section="Groups",
        summary="Get a group with its newest 100 projects",
    ),
    Route(
        call="POST /groups",
        params=(text("name", required=True), text("path", required=True), text("description")),
        operation="CreateGroup",
        result_path="createGroup.group",
        guard="MayCreateGroup",
        shape="Group",
        section="Groups",
        summary="Create a group, if the caller may",
    ),
    Route(
        call="DELETE /groups/:id",
        params=(GROUP,),
        operation="DeleteGroup",
        result_path="deleteGroup.group",
        reshape=add_keys(owner_id=None),
        shape="ProjectNamespace",
        section="Groups",
        summary="Delete a group with all its projects",
    ),
    Route(
        call="GET /groups/:id/projects",
        params=(
            GROUP,
            boolean("archived", default=None),
            choice("visibility", "public", "internal", "private", lenient=True),
            choice("order_by", "id", "name", "path", "created_at", "updated_at", "last_activity_at", lenient=True),
            choice("sort", "asc", "desc", lenient=True),
            text("search"),
            boolean("ci_enabled_first"),
        ),
        operation="GroupProjects",
        result_path="group.projects",
        shape="ProjectOfGroup",
        section="Groups",
        summary="List the projects of a group that the caller may see",
    ),
    Route(
        call="POST /groups/:id/projects/:project_id",
        params=(GROUP, text("project_id", required=True)),
        operation="TransferProject",
        result_path="transferProject.project.namespace",
        guard="MayAdministrate",
        error_field_names={"groupPath": "new_namespace", "path": "new_namespace"},
        shape="ProjectNamespace",
        section="Groups",
        summary="Transfer a project to a group; administrators only",
    ),
    Route(
        call="GET /groups/:id/members",
        params=(GROUP,),
        operation="GroupMembers",
        result_path="group.members",
        reshape=merge_child("user"),
        shape="GroupMember",
        section="Groups",
        summary="List the members of a group",
    ),
    Route(
        call="POST /groups/:id/members",
        params=(GROUP, integer("user_id", required=True), LEVEL),
        operation="AddGroupMember",
        result_path="addGroupMember.member",
        guard="MayAdminGroupMembers",
        not_found_noun={"User": "User"},
        reshape=merge_child("user"),
        shape="GroupMember",
        section="Groups",
        summary="Add a member to a group",
    ),
    Route(
        call="PUT /groups/:id/members/:user_id",
        params=(*MEMBER, LEVEL),
        operation="UpdateGroupMember",
        result_path="updateGroupMember.member",
        guard="MayUpdateGroupMember",
        not_found_noun={"User": MEMBER_NOT_FOUND, "GroupMember": MEMBER_NOT_FOUND},
        reshape=merge_child("user"),
        shape="GroupMember",
        section="Groups",
        summary="Change the access level of a group member",
    ),
    Route(
        call="DELETE /groups/:id/members/:user_id",
        params=MEMBER,
        operation="RemoveGroupMember",
        result_path="removeGroupMember.member",
        not_found_noun={"User": "User"},
        reshape=merge_child("user"),
        shape="GroupMember",
        section="Groups",
        summary="Remove a member from a group",
    ),
)

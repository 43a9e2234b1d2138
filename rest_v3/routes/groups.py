"""The section Groups of the interface document.

What it does not show: a deletion and a transfer answer the record of the namespace, as the document has it in a project's entry;
members answer the Group member, the one who goes as they were.
"""

from rest_v3.params import boolean, choice, integer, text
from rest_v3.reshape import merged, with_keys
from rest_v3.route import Route

GROUP = text("id", required=True)
MEMBER = (GROUP, integer("user_id", required=True))
LEVEL = integer("access_level", required=True, among=(10, 20, 30, 40, 50), wrong="Wrong access level")
NO_SUCH_MEMBER = "User can not be found"

GROUPS = (
    Route(
        call="GET /groups",
        params=(text("search"),),
        operation="Groups",
        gives="groups",
        shape="Group",
        section="Groups",
        summary="The caller's groups; all for administrators",
    ),
    Route(
        call="GET /groups/:id",
        params=(GROUP,),
        operation="Group",
        gives="group",
        shape="GroupDetails",
        section="Groups",
        summary="One group, with its newest 100 projects",
    ),
    Route(
        call="POST /groups",
        params=(text("name", required=True), text("path", required=True), text("description")),
        operation="CreateGroup",
        gives="createGroup.group",
        guard="MayCreateGroup",
        shape="Group",
        section="Groups",
        summary="Create a group, for who may",
    ),
    Route(
        call="DELETE /groups/:id",
        params=(GROUP,),
        operation="DeleteGroup",
        gives="deleteGroup.group",
        reshape=with_keys(owner_id=None),
        shape="ProjectNamespace",
        section="Groups",
        summary="Remove a group with all projects in it",
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
        gives="group.projects",
        shape="ProjectOfGroup",
        section="Groups",
        summary="The projects of a group that the caller may see",
    ),
    Route(
        call="POST /groups/:id/projects/:project_id",
        params=(GROUP, text("project_id", required=True)),
        operation="TransferProject",
        gives="transferProject.project.namespace",
        guard="MayAdministrate",
        fields={"groupPath": "new_namespace", "path": "new_namespace"},
        shape="ProjectNamespace",
        section="Groups",
        summary="Move a project into a group; administrators only",
    ),
    Route(
        call="GET /groups/:id/members",
        params=(GROUP,),
        operation="GroupMembers",
        gives="group.members",
        reshape=merged("user"),
        shape="GroupMember",
        section="Groups",
        summary="The members of a group",
    ),
    Route(
        call="POST /groups/:id/members",
        params=(GROUP, integer("user_id", required=True), LEVEL),
        operation="AddGroupMember",
        gives="addGroupMember.member",
        guard="MayAdminGroupMembers",
        missing={"User": "User"},
        reshape=merged("user"),
        shape="GroupMember",
        section="Groups",
        summary="Make a user a member of a group",
    ),
    Route(
        call="PUT /groups/:id/members/:user_id",
        params=(*MEMBER, LEVEL),
        operation="UpdateGroupMember",
        gives="updateGroupMember.member",
        guard="MayUpdateGroupMember",
        missing={"User": NO_SUCH_MEMBER, "GroupMember": NO_SUCH_MEMBER},
        reshape=merged("user"),
        shape="GroupMember",
        section="Groups",
        summary="Give a member of a group another level",
    ),
    Route(
        call="DELETE /groups/:id/members/:user_id",
        params=MEMBER,
        operation="RemoveGroupMember",
        gives="removeGroupMember.member",
        missing={"User": "User"},
        reshape=merged("user"),
        shape="GroupMember",
        section="Groups",
        summary="End a membership in a group",
    ),
)

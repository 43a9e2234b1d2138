"""The section System hooks of the interface document."""

from rest_v3.requests.params import integer, text
from rest_v3.reshape import add_keys, wrap_in_list
from rest_v3.route import Route

HOOK = (integer("id", required=True),)

HOOKS = (
    Route(
        call="GET /hooks",
        operation="Hooks",
        result_path="hooks",
        shape="Hook",
        section="System hooks",
        summary="List the system hooks",
    ),
    Route(
        call="POST /hooks",
        params=(text("url", required=True),),
        operation="CreateHook",
        result_path="createHook.hook",
        guard="MaySeeHooks",
        errors={"INVALID": (404, "404 Not Found")},
        reshape=wrap_in_list,
        shape="Hook",
        section="System hooks",
        summary="Create a system hook",
    ),
    Route(
        call="GET /hooks/:id",
        params=HOOK,
        operation="TestHook",
        result_path="testHook.delivery.payload",
        guard="MaySeeHooks",
        shape="HookTest",
        section="System hooks",
        summary="Send a sample event to a system hook and return it",
    ),
    Route(
        call="DELETE /hooks/:id",
        params=HOOK,
        operation="DeleteHook",
        result_path="deleteHook.hook",
        guard="MaySeeHooks",
        errors={"NOT_FOUND": 200},
        reshape=add_keys(project_id=None, service_id=None),
        shape="DeletedHook",
        section="System hooks",
        summary="Delete a system hook, if it exists",
    ),
)

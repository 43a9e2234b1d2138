"""The section Users of the interface document, and sign-in, which is not in it."""

from rest_v3.requests.params import boolean, integer, text
from rest_v3.reshape import return_true, show_keys_to_admins
from rest_v3.route import Route

USER = integer("id", required=True)
OWNER = integer("uid", required=True)
KEY = (text("title", required=True), text("key", required=True))
EMAIL = text("email", required=True)

PROFILE = (
    text("messenger", aliases=("skype",)),
    text("professional_profile", aliases=("linkedin",)),
    text("microblog", aliases=("twitter",)),
    text("website_url"),
    text("extern_uid"),
    text("provider"),
    text("bio"),
    integer("projects_limit"),
    boolean("admin"),
    boolean("can_create_group"),
)

ADMIN_KEYS = (
    "email",
    "extern_uid",
    "provider",
    "theme_id",
    "color_scheme_id",
    "can_create_group",
    "can_create_project",
    "projects_limit",
    "current_sign_in_at",
    "two_factor_enabled",
)
PUBLIC_PROFILE_KEYS = ("created_at", "is_admin", "bio", "messenger", "professional_profile", "microblog", "website_url")

ALL_ERRORS_AS_404 = {"INVALID": 404, "REQUIRED": 404, "TAKEN": 404, "CONFLICT": 404, "NOT_ALLOWED": 404, "TOO_LARGE": 404}
"""The document has no error except 404 for these routes; the message has the reason."""

INVALID_AS_404 = {code: status for code, status in ALL_ERRORS_AS_404.items() if code != "REQUIRED"}
"""The same for keys and e-mail addresses of other users, where a missing parameter is 400 (docs/decisions.md 40)."""

TAKEN = (409, "{Field} {message}")
TAKEN_AS_409 = {"TAKEN email": TAKEN, "TAKEN username": TAKEN}
"""The errors of a taken address and a taken name, which alone are a conflict (docs/wire-facts.md 2.1)."""

UNCHANGEABLE = {"FORBIDDEN User": (404, "{message}")}
"""The error of the ghost user, which replaces deleted users."""

USERS = (
    Route(
        call="GET /users",
        params=(text("search"), text("username"), boolean("active")),
        operation="Users",
        result_path="users",
        reshape=show_keys_to_admins(*ADMIN_KEYS, *PUBLIC_PROFILE_KEYS),
        shape="UserInList",
        section="Users",
        summary="List the users",
    ),
    Route(
        call="GET /users/:id",
        params=(USER,),
        operation="User",
        result_path="user",
        reshape=show_keys_to_admins(*ADMIN_KEYS),
        shape="User",
        section="Users",
        summary="Get a user",
    ),
    Route(
        call="POST /users",
        params=(
            EMAIL,
            text("password", required=True),
            text("name", required=True),
            text("username", required=True),
            *PROFILE,
            boolean("confirm"),
        ),
        operation="CreateUser",
        result_path="createUser.user",
        guard="MayAdministrate",
        errors=TAKEN_AS_409,
        shape="UserForAdmin",
        section="Users",
        summary="Create a user; administrators only",
    ),
    Route(
        call="PUT /users/:id",
        params=(USER, text("email"), text("password"), text("name"), text("username"), *PROFILE),
        operation="UpdateUser",
        result_path="updateUser.user",
        guard="MayChangeUser",
        errors={**ALL_ERRORS_AS_404, **UNCHANGEABLE},
        shape="UserForAdmin",
        section="Users",
        summary="Update a user; administrators only",
    ),
    Route(
        call="DELETE /users/:id",
        params=(USER,),
        operation="DeleteUser",
        result_path="deleteUser.user",
        errors={"NOT_FOUND": 200},
        shape="UserForAdmin",
        section="Users",
        summary="Delete a user; administrators only",
    ),
    Route(
        call="GET /user",
        operation="CurrentUser",
        result_path="viewer",
        no_store=True,
        shape="CurrentUser",
        section="Users",
        summary="Get the caller, with the private token",
    ),
    Route(
        call="GET /user/keys",
        operation="OwnKeys",
        result_path="viewer.sshKeys",
        shape="SSHKey",
        section="Users",
        summary="List the caller's SSH keys",
    ),
    Route(
        call="GET /users/:uid/keys",
        params=(OWNER,),
        operation="UserKeys",
        result_path="sshKeys",
        not_found_noun="User",
        shape="SSHKey",
        section="Users",
        summary="List the SSH keys of a user; administrators only",
    ),
    Route(
        call="GET /user/keys/:id",
        params=(USER,),
        operation="OwnKey",
        result_path="viewer.sshKey",
        shape="SSHKey",
        section="Users",
        summary="Get one of the caller's SSH keys",
    ),
    Route(
        call="POST /user/keys",
        params=KEY,
        operation="AddOwnKey",
        result_path="addSshKey.sshKey",
        shape="SSHKey",
        section="Users",
        summary="Add an SSH key",
    ),
    Route(
        call="POST /users/:id/keys",
        params=(USER, *KEY),
        operation="AddUserKey",
        result_path="addSshKey.sshKey",
        guard="MayChangeUser",
        errors={**INVALID_AS_404, **UNCHANGEABLE},
        shape="SSHKey",
        section="Users",
        summary="Add an SSH key to a user; administrators only",
    ),
    Route(
        call="DELETE /user/keys/:id",
        params=(USER,),
        operation="DeleteOwnKey",
        result_path="deleteSshKey.sshKey",
        errors={"NOT_FOUND": 200},
        shape="SSHKey",
        section="Users",
        summary="Delete an SSH key",
    ),
    Route(
        call="DELETE /users/:uid/keys/:id",
        params=(OWNER, USER),
        operation="DeleteUserKey",
        result_path="deleteSshKey.sshKey",
        not_found_noun={"User": "User", "SshKey": "Key"},
        shape="SSHKey",
        section="Users",
        summary="Delete an SSH key of a user; administrators only",
    ),
    Route(
        call="GET /user/emails",
        operation="OwnEmails",
        result_path="viewer.emails",
        shape="Email",
        section="Users",
        summary="List the caller's secondary e-mail addresses",
    ),
    Route(
        call="GET /users/:uid/emails",
        params=(OWNER,),
        operation="UserEmails",
        result_path="emails",
        not_found_noun="User",
        shape="Email",
        section="Users",
        summary="List a user's secondary e-mail addresses; administrators only",
    ),
    Route(
        call="GET /user/emails/:id",
        params=(USER,),
        operation="OwnEmail",
        result_path="viewer.secondaryEmail",
        shape="Email",
        section="Users",
        summary="Get one of the caller's secondary e-mail addresses",
    ),
    Route(
        call="POST /user/emails",
        params=(EMAIL,),
        operation="AddOwnEmail",
        result_path="addEmail.email",
        shape="Email",
        section="Users",
        summary="Add an e-mail address",
    ),
    Route(
        call="POST /users/:id/emails",
        params=(USER, EMAIL),
        operation="AddUserEmail",
        result_path="addEmail.email",
        guard="MayChangeUser",
        errors={**INVALID_AS_404, **UNCHANGEABLE},
        shape="Email",
        section="Users",
        summary="Add an e-mail address to a user; administrators only",
    ),
    Route(
        call="DELETE /user/emails/:id",
        params=(USER,),
        operation="DeleteOwnEmail",
        errors={"NOT_FOUND": 200, "NOT_ALLOWED": 200},
        section="Users",
        summary="Delete an e-mail address",
    ),
    Route(
        call="DELETE /users/:uid/emails/:id",
        params=(OWNER, USER),
        operation="DeleteUserEmail",
        errors={"NOT_ALLOWED": (404, "404 Email Not Found")},
        not_found_noun={"User": "User", "Email": "Email"},
        section="Users",
        summary="Delete an e-mail address of a user; administrators only",
    ),
    Route(
        call="PUT /users/:uid/block",
        params=(OWNER,),
        operation="BlockUser",
        result_path="blockUser.user",
        errors={"CONFLICT": 403},
        not_found_noun="User",
        reshape=return_true,
        shape="True",
        section="Users",
        summary="Block a user; administrators only",
    ),
    Route(
        call="PUT /users/:uid/unblock",
        params=(OWNER,),
        operation="UnblockUser",
        result_path="unblockUser.user",
        errors={"CONFLICT": (200, False)},
        not_found_noun="User",
        reshape=return_true,
        shape="True",
        section="Users",
        summary="Unblock a user; administrators only",
    ),
)

SESSION = Route(
    call="POST /session",
    params=(text("email", aliases=("login",), default=""), text("password", default="")),
    operation="SignIn",
    result_path="signIn.user",
    allows_anonymous=True,
    no_store=True,
    # A value that nobody can have is a wrong one.
    errors={"UNAUTHENTICATED": 401, "INVALID": (401, "401 Unauthorized")},
    shape="CurrentUser",
    section="Users",
    summary="Sign in with a password and get the private token",
)

KEY_WITH_USER = Route(
    call="GET /keys/:id",
    params=(USER,),
    operation="KeyWithUser",
    result_path="sshKey",
    shape="SSHKeyWithUser",
    section="Users",
    summary="Get an SSH key of any user, with the user; administrators only",
)

"""The section Application settings of the interface document."""

from rest_v3.requests.params import boolean, integer, integers, names, text
from rest_v3.route import Route

LEVELS = {0: "PRIVATE", 1: "INTERNAL", 2: "PUBLIC", 10: "INTERNAL", 20: "PUBLIC"}
"""The document's visibility levels, and those that legacy clients use."""
VISIBILITIES = ("PRIVATE", "INTERNAL", "PUBLIC")
PROTECTION = {0: "NONE", 1: "PARTIAL", 2: "FULL"}

CHANGES = (
    integer("default_projects_limit"),
    boolean("signup_enabled", strict=True),
    boolean("signin_enabled", strict=True),
    boolean("avatar_service_enabled", aliases=("gravatar_enabled",), strict=True),
    text("sign_in_text"),
    text("home_page_url"),
    integer("default_branch_protection", meanings=PROTECTION, allowed=tuple(PROTECTION.values())),
    boolean("microblog_sharing_enabled", aliases=("twitter_sharing_enabled",), strict=True),
    integers("restricted_visibility_levels", blank_clears=True, null_clears=True, meanings=LEVELS, allowed=VISIBILITIES),
    integer("max_attachment_size"),
    integer("session_expire_delay"),
    integer("default_project_visibility", meanings=LEVELS, allowed=VISIBILITIES),
    integer("default_snippet_visibility", meanings=LEVELS, allowed=VISIBILITIES),
    names("restricted_signup_domains", blank_clears=True, null_clears=True),
    boolean("user_oauth_applications", strict=True),
    text("after_sign_out_path"),
)

SETTINGS = (
    Route(
        call="GET /application/settings",
        operation="ApplicationSettings",
        result_path="settings",
        shape="ApplicationSettings",
        section="Application settings",
        summary="Get the application settings; administrators only",
    ),
    Route(
        call="PUT /application/settings",
        params=CHANGES,
        operation="UpdateApplicationSettings",
        result_path="updateSettings.settings",
        guard="MayAdministrate",
        shape="ApplicationSettings",
        section="Application settings",
        summary="Update the application settings; administrators only",
    ),
)

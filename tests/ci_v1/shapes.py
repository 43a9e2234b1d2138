"""The closed key sets of the protocol (docs/wire-facts.md 13.2), in their order. A leading `?` marks an optional key."""

from typing import Any

BUILD = ("id", "ref", "tag", "sha", "status", "name", "token", "stage", "project_id", "project_name", "?artifacts_file")
SHAPES: dict[str, tuple[str, ...]] = {
    "Registered": ("id", "token"),
    "Runner": (
        *("id", "created_at", "description", "contacted_at", "active", "is_shared"),
        *("name", "version", "revision", "platform", "architecture"),
    ),
    "Build": BUILD,
    "BuildDetails": (
        *BUILD,
        *("commands", "repo_url", "before_sha", "allow_git_fetch", "options", "timeout", "variables", "depends_on_builds"),
    ),
    "Options": ("?image", "?services", "?artifacts", "?cache", "?after_script", "?dependencies"),
    "Variable": ("key", "value", "public"),
    "ArtifactsFile": ("filename", "size"),
    "Authorized": ("TempPath",),
    "Error": ("message",),
}


def check_shape(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """The value, which has all keys of the shape, none beside them, and in that order."""
    order = [key.removeprefix("?") for key in SHAPES[name]]
    needed = {key for key in SHAPES[name] if not key.startswith("?")}
    assert needed <= value.keys()
    assert list(value) == [key for key in order if key in value]
    if "artifacts_file" in value:
        check_shape("ArtifactsFile", value["artifacts_file"])
    if name == "BuildDetails":
        check_shape("Options", value["options"])
        for variable in value["variables"]:
            check_shape("Variable", variable)
        for build in value["depends_on_builds"]:
            check_shape("Build", build)
    return value

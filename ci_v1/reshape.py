"""Conversions of results that GraphQL cannot express."""

from collections.abc import Mapping
from typing import Any

TOKEN_USERNAME = "gitlab-ci-token"  # noqa: S105 - a user name, not a token
"""The user name beside a build's token in the URL of a repository."""
ZERO_SHA = "0" * 40


def format_build_details(job: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """BuildDetails, with its keys in the order of docs/wire-facts.md 13.2. Optional keys without a value are left out."""
    token = job["token"]
    scheme, _, address = job["repository_url"].partition("://")
    options = {key: job[key] for key in ("image", "services", "artifacts", "cache", "after_script") if job[key]}
    if job["dependencies"] is not None:
        # An empty list: the runner downloads no artifacts. Without the key it downloads those of all earlier stages.
        options["dependencies"] = job["dependencies"]
    return {
        **_format_build(job["build"], token),
        "commands": "\n".join(job["script"]),
        "repo_url": f"{scheme}://{TOKEN_USERNAME}:{token}@{address}",
        "before_sha": ZERO_SHA,
        "allow_git_fetch": job["allow_git_fetch"],
        "options": {key: _drop_nulls(value) for key, value in options.items()},
        "timeout": job["timeout"],
        "variables": job["variables"],
        "depends_on_builds": [_format_build(build, token) for build in job["depends_on"]],
    }


def _format_build(build: Mapping[str, Any], token: str) -> dict[str, Any]:
    """One build. A build of an earlier stage includes its own token, with which the runner downloads its artifacts."""
    formatted = {key: build[key] for key in ("id", "ref", "tag", "sha", "status", "name")}
    formatted |= {"token": token, "stage": build["stage"], "project_id": build["project_id"], "project_name": build["project"]["name"]}
    return formatted if build["artifacts_file"] is None else {**formatted, "artifacts_file": build["artifacts_file"]}


def _drop_nulls(value: Any) -> Any:
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else value


def format_registration(payload: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": payload["runner"]["id"], "token": payload["token"]}


def format_authorization(value: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The temporary path to which GitLab's proxy would write the file. This service streams the file, so there is none."""
    return {"TempPath": ""}

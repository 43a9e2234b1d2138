"""The public variables of a job, and their expansion in strings of the CI file."""

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from graph.context import Context
from storage import tables
from storage.git.refs.ref_names import NULL_ID
from storage.tables import RunWhen

MAX_REF_SLUG_LENGTH = 63
MAX_ENVIRONMENT_SLUG_LENGTH = 24
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_REFERENCE_PATTERN = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


async def load_pipeline(context: Context, build: tables.Build) -> tables.Pipeline | None:
    return await context.rows_by_id(tables.Pipeline).get(build.pipeline_id) if build.pipeline_id is not None else None


def predefined_variables(context: Context, build: tables.Build, pipeline: tables.Pipeline | None) -> dict[str, str]:
    """The variables that the service defines, without secrets."""
    program_version = version("forgefront")
    is_triggered = pipeline is not None and pipeline.trigger_request_id is not None
    return {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_SERVER": "yes",
        "CI_SERVER_NAME": "Forgefront",
        "CI_SERVER_VERSION": program_version,
        # A released program has no other revision.
        "CI_SERVER_REVISION": program_version,
        "CI_SERVER_URL": context.services.external_url,
        "CI_PROJECT_ID": str(build.project_id),
        "CI_BUILD_ID": str(build.id),
        "CI_BUILD_REF": build.sha,
        "CI_BUILD_BEFORE_SHA": (pipeline and pipeline.before_sha) or NULL_ID,
        "CI_BUILD_REF_NAME": build.ref,
        "CI_BUILD_REF_SLUG": ref_slug(build.ref),
        "CI_BUILD_NAME": build.name,
        "CI_BUILD_STAGE": build.stage,
        **({"CI_BUILD_TAG": build.ref} if build.tag else {}),
        **({"CI_BUILD_TRIGGERED": "true"} if is_triggered else {}),
        **({"CI_BUILD_MANUAL": "true"} if build.run_when is RunWhen.MANUAL else {}),
    }


def configured_variables(build: tables.Build) -> dict[str, str]:
    """The variables of the CI file."""
    return {str(key): str(value) for key, value in (build.options.get("variables") or {}).items()}


def environment_variables(options: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """The name and the slug of the environment to which a job with these options deploys; empty without one."""
    name = environment_name(options, known)
    return {"CI_ENVIRONMENT_NAME": name, "CI_ENVIRONMENT_SLUG": environment_slug(name)} if name is not None else {}


def environment_name(options: Mapping[str, Any], known: Mapping[str, str]) -> str | None:
    """The name of the job's environment with its variables expanded; None if it has none or the name is too long."""
    section: Any = options.get("environment")
    name = expand(str(section["name"]), known).strip() if isinstance(section, dict) and "name" in section else ""
    return name if 0 < len(name) <= 255 and name.isprintable() else None


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$NAME` and `${NAME}` once; unknown names are replaced by nothing.

    >>> expand("review/${REF}-$X", {"REF": "a$X"})
    'review/a$X-'
    """
    return _REFERENCE_PATTERN.sub(lambda match: values.get(match[1] or match[2], ""), text)


def ref_slug(ref: str) -> str:
    """The ref as a part of a host name: `feature/Ünder_score` is `feature--nder-score`."""
    return re.sub("[^a-z0-9]", "-", ref.lower())[:MAX_REF_SLUG_LENGTH].strip("-")


def environment_slug(name: str) -> str:
    """The name as a part of a host name; a name that is changed for it gets a suffix, so that two names have two slugs."""
    slug = re.sub("-+", "-", re.sub("[^a-z0-9]", "-", name.lower()))
    slug = (slug if slug[:1].isalpha() else f"env-{slug}").rstrip("-")
    if slug == name and len(slug) <= MAX_ENVIRONMENT_SLUG_LENGTH:
        return slug
    number, suffix = int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()), ""
    for _ in range(6):
        number, digit = divmod(number, 36)
        suffix += _DIGITS[digit]
    return f"{slug[: MAX_ENVIRONMENT_SLUG_LENGTH - 7].rstrip('-')}-{suffix}"

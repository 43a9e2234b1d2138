"""Automatic retries of failed builds: `retry` of the CI file."""

from enum import StrEnum

from storage import tables
from storage.tables import CheckStatus

MAX_RETRIES = 2
"""Maximum of `retry`."""
ALWAYS = "always"


class FailureReason(StrEnum):
    """Why a build for a runner failed."""

    SCRIPT_FAILURE = "script_failure"
    STUCK_OR_TIMEOUT_FAILURE = "stuck_or_timeout_failure"
    RUNNER_SYSTEM_FAILURE = "runner_system_failure"


def is_retry_due(build: tables.Build, reason: FailureReason | None) -> bool:
    """Whether the failed build starts again. Attempts that people started count too; None is a failure that somebody reported by hand."""
    section = build.options.get("retry")
    if build.status is not CheckStatus.FAILED or reason is None or not isinstance(section, dict):
        return False
    conditions = section.get("when", [ALWAYS])
    return build.attempt <= section.get("max", 0) and (ALWAYS in conditions or reason in conditions)

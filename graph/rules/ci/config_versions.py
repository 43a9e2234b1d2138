"""Which version of GitLab a CI file follows: later keys are handled as that version handles them."""

import re
from collections.abc import Mapping

CiVersion = tuple[int, int]
"""A version of GitLab as (major, minor)."""

KEYS_SINCE: Mapping[str, CiVersion] = {
    "dependencies": (8, 6),
    "after_script": (8, 7),
    "environment": (8, 9),
    "coverage": (8, 17),
    "retry": (9, 5),
    "extends": (11, 3),
    "needs": (12, 2),
    "rules": (12, 3),
}
"""Keys of jobs; older versions refuse them."""
ARTIFACTS_KEYS_SINCE: Mapping[str, CiVersion] = {"name": (8, 6), "when": (8, 9), "expire_in": (8, 9)}
"""Keys of `artifacts`; older versions ignore them."""
HIDDEN_KEYS_SINCE = (8, 6)
"""Before, a name that begins with a dot was that of a job."""
MANUAL_SINCE = (8, 10)
ENVIRONMENT_MAPPING_SINCE = (8, 11)
ENVIRONMENT_STOP_SINCE = (8, 13)
MANUAL_IS_ALLOWED_TO_FAIL_SINCE = (9, 0)
INCLUDE_SINCE = (10, 5)

OLDEST = (8, 5)
VERSION_PATTERN = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})")
_COMMENT_PATTERN = re.compile(r"\ufeff?#[ \t]*gitlab-ci[ \t]+([0-9]{1,2}\.[0-9]{1,2})[ \t]*(?:\r?\n|\Z)")


def parse_version(text: str) -> CiVersion:
    """Parse a version such as `8.17`. Raises ValueError, also for one before 8.5."""
    found = VERSION_PATTERN.fullmatch(text.strip())
    if found is None or (version := (int(found[1]), int(found[2]))) < OLDEST:
        raise ValueError("must be a version from 8.5 on, such as 8.17")
    return version


def version_of_file(source: str) -> CiVersion | None:
    """The version in the file's first line, which then is `# gitlab-ci 8.17`; None for any other line. Raises ValueError."""
    found = _COMMENT_PATTERN.match(source)
    return parse_version(found[1]) if found is not None else None


def is_known(version: CiVersion | None, since: CiVersion) -> bool:
    """Whether a version has what came with `since`; None is the newest."""
    return version is None or version >= since

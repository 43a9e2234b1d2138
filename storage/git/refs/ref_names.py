"""Names of refs: their folders, lengths and validity, and the form of object ids."""

import re
from collections.abc import Callable, Collection

import pygit2

BRANCHES = "refs/heads/"
TAGS = "refs/tags/"
DEFAULT_HEAD = "master"
"""The branch of HEAD in an empty repository without a choice of its owner."""
MAX_REF_NAME_LENGTH = 512
"""Maximum length of a complete name; longer ones of imported repositories are not stored."""

NULL_ID = "0" * 40
"""Stands for no object, as before a ref is created."""
FULL_ID = re.compile("[0-9a-f]{40}")
"""An object id as git and the database write it."""
TYPED_ID = re.compile("[0-9a-fA-F]{40}")
"""An object id as git reads it: upper-case digits are the same id."""


def choose_default_branch(head: str | None, names: Collection[str], is_usable: Callable[[str], bool] = lambda _: True) -> str | None:
    """Returns the branch that HEAD names if it exists, otherwise main, master or the first by name; None without usable branches."""
    return next((name for name in (head, "main", "master", *sorted(names)) if name in names and name is not None and is_usable(name)), None)


def is_branch_name(name: str) -> bool:
    """Whether this is a valid branch name (git check-ref-format) that no command takes for an option."""
    return not name.startswith("-") and name != "HEAD" and is_valid_ref_name(BRANCHES + name)


def is_ref_name(full_name: str) -> bool:
    """Whether this is a valid full name of a branch or tag (git check-ref-format)."""
    return full_name.startswith((BRANCHES, TAGS)) and is_valid_ref_name(full_name)


def is_valid_ref_name(full_name: str) -> bool:
    """Whether git allows this complete name."""
    # libgit2 reads a C string, so it would check only the part before a NUL.
    try:
        return "\0" not in full_name and pygit2.reference_is_valid_name(full_name)
    except ValueError:
        return False

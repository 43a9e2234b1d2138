"""Folders and lengths of the names of refs, and the form of object ids."""

import re

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

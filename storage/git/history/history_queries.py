"""Questions about the whole history of a commit, which git processes answer within a time limit where the newest commits do not.

All functions raise UnknownCommit, GitCommandError and DamagedRepository.
"""

import re
from dataclasses import dataclass

from storage.git.history.short_histories import find_last_change
from storage.git.merge import WALK_SECONDS
from storage.git.repository import Repository
from storage.git.subprocesses import git_command
from storage.git.trees import argument_of


def last_change(repository: Repository, commit: str, path: str) -> str | None:
    """Returns the newest commit in the history of `commit`, itself included, that changed the path; None if there is none."""
    repository.raw_commit(commit)
    if (found := find_last_change(repository, commit, path)) is not None:
        return found
    # The path is data, whatever characters it has.
    arguments = ("--literal-pathspecs", "rev-list", "-1", commit, "--", argument_of(repository, commit, path))
    return git_command.run(repository.path, *arguments, seconds=WALK_SECONDS).decode().strip() or None


@dataclass(frozen=True, slots=True)
class AuthorTotal:
    """An author of commits. `commits` is their number, without merges."""

    name: str
    email: str
    commits: int


def list_contributors(repository: Repository, commit: str) -> list[AuthorTotal]:
    """Returns the authors of the history of `commit`, one per e-mail address, those with most commits first."""
    repository.raw_commit(commit)
    output = git_command.run(repository.path, "shortlog", "-s", "-n", "-e", "--no-merges", commit, "--", seconds=WALK_SECONDS)
    found: dict[str, AuthorTotal] = {}
    # Only git's own line breaks: a name may contain others, such as U+2028.
    for line in output.decode("utf-8", "replace").split("\n"):
        if (parsed := _SHORTLOG_LINE.fullmatch(line)) is not None:
            number, name, email = parsed.groups()
            # The line with most commits comes first, so its name is the one that the author uses most.
            known = found.get(email.lower(), AuthorTotal(name, email, 0))
            found[email.lower()] = AuthorTotal(known.name, known.email, known.commits + int(number))
    return sorted(found.values(), key=lambda author: (-author.commits, author.name))


_SHORTLOG_LINE = re.compile(r"\s*(\d+)\t(.*?) ?<(.*)>")

"""Questions about the whole history of a commit, which git processes answer within a time limit.

All functions raise UnknownCommit, GitCommandError and DamagedRepository.
"""

from storage.git.merge import WALK_SECONDS
from storage.git.repository import Repository
from storage.git.subprocesses import git_command


def last_change(repository: Repository, commit: str, path: str) -> str | None:
    """Returns the newest commit in the history of `commit`, itself included, that changed the path; None if there is none."""
    repository.raw_commit(commit)
    # The path is data, whatever characters it has.
    arguments = ("--literal-pathspecs", "rev-list", "-1", commit, "--", path)
    return git_command.run(repository.path, *arguments, seconds=WALK_SECONDS).decode().strip() or None

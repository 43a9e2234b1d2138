"""Lists the authors of a history."""

from storage.git.repository import Repository
from storage.git.subprocesses import git_command

TIMEOUT_SECONDS = 600.0
"""Seconds; a million commits take about ten."""


def list_authors(repository: Repository) -> list[tuple[str, str, int]]:
    """Returns (name, e-mail, number of commits) of every author of commits reachable from a branch, a tag or HEAD.

    They are in the order of their first commits. Names and addresses are those of the commits, in any format and possibly empty.
    Raises GitCommandError.
    """
    starts = sorted({ref.oid for ref in (*repository.branches(), *repository.tags())})
    if repository.handle.head_is_detached:
        starts.append(str(repository.handle.head.target))
    if not starts:
        return []
    settings = ("--stdin", "--reverse", "-z", "--format=%an%n%ae")
    output = git_command.run(repository.path, "log", *settings, stdin="\n".join(starts).encode() + b"\n", seconds=TIMEOUT_SECONDS)
    counts: dict[tuple[str, str], int] = {}
    for entry in output.decode("utf-8", "replace").split("\0"):
        name, _, email = entry.partition("\n")
        if entry:
            counts[name, email] = counts.get((name, email), 0) + 1
    return [(name, email, count) for (name, email), count in counts.items()]

"""Who wrote a history."""

from storage.git import program
from storage.git.repository import Repository


def authors(repository: Repository) -> list[tuple[str, str, int]]:
    """(name, e-mail, number of commits) of every author whom a branch or tag reaches, in the order of their first commits.

    Names and addresses are as the commits have them, in any spelling and possibly empty. Raises GitFailed.
    """
    if repository.is_empty():
        return []
    said = program.run(repository.path, "log", "--branches", "--tags", "HEAD", "--reverse", "-z", "--format=%an%n%ae")
    counts: dict[tuple[str, str], int] = {}
    for entry in said.decode("utf-8", "replace").split("\0"):
        name, _, email = entry.partition("\n")
        if entry:
            counts[name, email] = counts.get((name, email), 0) + 1
    return [(name, email, count) for (name, email), count in counts.items()]

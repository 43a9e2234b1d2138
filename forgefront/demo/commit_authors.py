"""Turns the authors of a history into users: one for each person, with valid unique usernames and all their addresses.

Two entries are the same person when they share the address or the name, ignoring case. The same history always produces the same users.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from graph.errors import UserError
from graph.rules import validation

MAX_USERNAME_LENGTH = 40
_NOREPLY_PATTERN = re.compile(r"\d+\+(.+)@users\.noreply\..+")


@dataclass
class CommitAuthor:
    """`emails` are lower case, the most frequent first; empty if the history has no valid address."""

    name: str
    username: str = ""
    emails: list[str] = field(default_factory=list)
    commits: int = 0


def group_authors(
    entries: Iterable[tuple[str, str, int]], reserved: Iterable[str], is_valid_address: Callable[[str], bool]
) -> list[CommitAuthor]:
    """The persons behind (name, e-mail, commits) entries, in the order of the entries. No person gets a `reserved` username."""
    authors = list(entries)
    groups = _DisjointSets()
    for name, email, _ in authors:
        keys = [f"name:{name.strip().casefold()}"] if name.strip() else []
        keys += [f"email:{email.strip().lower()}"] if is_valid_address(email.strip().lower()) else []
        groups.join(keys or ["name:"])
    authors_by_group: dict[str, CommitAuthor] = {}
    names: dict[str, dict[str, int]] = {}
    emails: dict[str, dict[str, int]] = {}
    for name, email, commits in authors:
        address = email.strip().lower()
        is_valid = is_valid_address(address)
        key = groups.find(f"name:{name.strip().casefold()}" if name.strip() or not is_valid else f"email:{address}")
        author = authors_by_group.setdefault(key, CommitAuthor(""))
        author.commits += commits
        display_name = name.strip() or address.partition("@")[0] or "Unknown author"
        _add_count(names.setdefault(key, {}), display_name[: validation.MAX_NAME_LENGTH], commits)
        if is_valid:
            _add_count(emails.setdefault(key, {}), address, commits)
    used_usernames = {username.lower() for username in reserved}
    for key, author in authors_by_group.items():
        author.name = _by_count(names[key])[0]
        author.emails = _by_count(emails.get(key, {}))
        author.username = _unused_username(_suggest_username(author), used_usernames)
        used_usernames.add(author.username.lower())
    return list(authors_by_group.values())


class _DisjointSets:
    """A union-find structure over keys."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def find(self, key: str) -> str:
        while (parent := self._parents.setdefault(key, key)) != key:
            self._parents[key] = self._parents[parent]
            key = parent
        return key

    def join(self, keys: list[str]) -> None:
        for other in keys[1:]:
            self._parents[self.find(other)] = self.find(keys[0])
        self.find(keys[0])


def _add_count(counts: dict[str, int], word: str, by: int) -> None:
    counts[word] = counts.get(word, 0) + by


def _by_count(counts: dict[str, int]) -> list[str]:
    """The words by falling count; ties keep their order."""
    return sorted(counts, key=lambda word: -counts[word])


def _suggest_username(person: CommitAuthor) -> str:
    """`jane-doe` for Jane Doe; for names without Latin letters, the local part of the address."""
    email = person.emails[0] if person.emails else ""
    forwarded = _NOREPLY_PATTERN.fullmatch(email)
    local = forwarded[1] if forwarded else email.partition("@")[0]
    for text in (person.name, local):
        word = validation.suggest_path(text)[:MAX_USERNAME_LENGTH].strip(".-")
        if re.search("[a-z]", word):
            return word
    return "author"


def _unused_username(suggestion: str, used: set[str]) -> str:
    numbers = iter(range(2, len(used) + 10))
    candidate = suggestion
    while candidate in used or not _is_valid_username(candidate):
        candidate = f"{suggestion}-{next(numbers)}"
    return candidate


def _is_valid_username(username: str) -> bool:
    try:
        validation.validate_namespace_path("username", username)
    except UserError:
        return False
    return True

"""Makes users of the authors of a history: one for each person, with lawful and unique usernames and all their addresses.

Two entries are one person when they share the address or the name, without case. What is made of a history is the same each time.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from graph.errors import UserError
from graph.rules import naming

LONGEST_USERNAME = 40
_FORWARDED = re.compile(r"\d+\+(.+)@users\.noreply\..+")


@dataclass
class Person:
    """`emails` are lower case, the most used one first, and empty where the history has none that an account may have."""

    name: str
    username: str = ""
    emails: list[str] = field(default_factory=list)
    commits: int = 0


def people(entries: Iterable[tuple[str, str, int]], taken: Iterable[str], lawful: Callable[[str], bool]) -> list[Person]:
    """The persons behind (name, e-mail, commits) entries, in the order of the entries. `taken` usernames are given to nobody."""
    found = list(entries)
    groups = _Groups()
    for name, email, _ in found:
        keys = [f"name:{name.strip().casefold()}"] if name.strip() else []
        keys += [f"email:{email.strip().lower()}"] if lawful(email.strip().lower()) else []
        groups.join(keys or ["name:"])
    persons: dict[str, Person] = {}
    names: dict[str, dict[str, int]] = {}
    emails: dict[str, dict[str, int]] = {}
    for name, email, commits in found:
        address = email.strip().lower()
        usable = lawful(address)
        key = groups.of(f"name:{name.strip().casefold()}" if name.strip() or not usable else f"email:{address}")
        person = persons.setdefault(key, Person(""))
        person.commits += commits
        spelled = name.strip() or address.partition("@")[0] or "Unknown author"
        _count(names.setdefault(key, {}), spelled[: naming.LONGEST_NAME], commits)
        if usable:
            _count(emails.setdefault(key, {}), address, commits)
    used = {username.lower() for username in taken}
    for key, person in persons.items():
        person.name = _most(names[key])[0]
        person.emails = _most(emails.get(key, {}))
        person.username = _free(_suggestion(person), used)
        used.add(person.username.lower())
    return list(persons.values())


class _Groups:
    """Disjoint sets of keys: those that were joined belong together."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def of(self, key: str) -> str:
        while (above := self._above.setdefault(key, key)) != key:
            self._above[key] = self._above[above]
            key = above
        return key

    def join(self, keys: list[str]) -> None:
        for other in keys[1:]:
            self._above[self.of(other)] = self.of(keys[0])
        self.of(keys[0])


def _count(counts: dict[str, int], word: str, by: int) -> None:
    counts[word] = counts.get(word, 0) + by


def _most(counts: dict[str, int]) -> list[str]:
    """The words by falling count; of equal ones the first comes first."""
    return sorted(counts, key=lambda word: -counts[word])


def _suggestion(person: Person) -> str:
    """`jane-doe` for Jane Doe; for names without Latin letters, what stands before the @."""
    mailed = person.emails[0] if person.emails else ""
    forwarded = _FORWARDED.fullmatch(mailed)
    local = forwarded[1] if forwarded else mailed.partition("@")[0]
    for text in (person.name, local):
        word = naming.path_from(text)[:LONGEST_USERNAME].strip(".-")
        if re.search("[a-z]", word):
            return word
    return "author"


def _free(wanted: str, used: set[str]) -> str:
    numbers = iter(range(2, len(used) + 10))
    candidate = wanted
    while candidate in used or not _allowed(candidate):
        candidate = f"{wanted}-{next(numbers)}"
    return candidate


def _allowed(username: str) -> bool:
    try:
        naming.namespace_path("username", username)
    except UserError:
        return False
    return True

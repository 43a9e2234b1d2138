"""Resolves the references of rendered texts to what the viewer may see.

All texts of a level share the statements, whose number does not depend on how many texts or references there are.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from graph.context import Context
from graph.rules import lookup, web_urls
from graph.rules.builds.commit_checks import load_newest_checks
from graph.rules.builds.rollups import RollupState, roll_up
from graph.rules.markdown.rendering import Reference, ReferenceLink
from graph.rules.notes.mentions import MENTIONABLE_KINDS, load_project_ids
from graph.rules.permissions.policy import Action, can, filter_visible_projects
from storage import tables
from storage.tables.accounts import users
from storage.tables.git import commits
from storage.tables.projects import projects

MAX_RESOLVED = 500
"""References of one level that become links, of each kind; a statement has a limited number of conditions."""

MAX_STATES = 100
"""Commits of one level whose state is shown: that of a commit takes its checks, which can be many."""
STATE_WORDS = {
    RollupState.PENDING: "waiting",
    RollupState.RUNNING: "running",
    RollupState.FAILED: "failed",
    RollupState.SUCCESS: "passed",
    RollupState.CANCELED: "canceled",
}

SECTIONS = {"#": "issues", "!": "merge_requests"}
"""The sections of a project's page, by the sigil of a reference."""


class ProjectReference(NamedTuple):
    """A reference in a text of this project."""

    project_id: int
    reference: Reference


async def resolve(context: Context, references: Iterable[ProjectReference]) -> dict[ProjectReference, ReferenceLink]:
    """The links of those references that name something that the viewer may see."""
    unique = list(dict.fromkeys(references))
    if not unique:
        return {}
    paths = await load_project_ids(context, {each.reference.project for each in unique if each.reference.project is not None})
    owners = {each: each.project_id if each.reference.project is None else paths.get(each.reference.project) for each in unique}
    owned = [(each, owner) for each, owner in owners.items() if owner is not None and each.reference.kind != "@"]
    visible_ids = await filter_visible_projects(context, sorted({owner for _, owner in owned}))
    rows = {key: row for key, row in (await context.rows_by_id(tables.Project).get_many(sorted(visible_ids))).items() if row is not None}
    urls = dict(zip(rows, await web_urls.load_project_urls(context, list(rows)), strict=True))

    async def list_allowed(action: Action) -> set[int]:
        return {key for key, row in rows.items() if await can(context, action, row)}

    async def list_readable(sigil: str, action: Action) -> list[tuple[ProjectReference, int]]:
        readable = await list_allowed(action)
        return [(each, owner) for each, owner in owned if each.reference.kind == sigil and owner in readable][:MAX_RESOLVED]

    found = await _resolve_users(context, [each for each in unique if each.reference.kind == "@"])
    for kind in MENTIONABLE_KINDS:
        found.update(await _resolve_numbers(context, kind.table, await list_readable(kind.sigil, kind.read_action), urls))
    checked = await list_allowed(Action.READ_CHECKS)
    found.update(await _resolve_commits(context, await list_readable("", Action.READ_CODE), urls, checked))
    return found


async def _resolve_users(context: Context, references: Sequence[ProjectReference]) -> dict[ProjectReference, ReferenceLink]:
    """The links of references to users, whose names are compared ignoring case, as in every look-up of a user."""
    usernames = list({each.reference.name for each in references})[:MAX_RESOLVED]
    if not usernames:
        return {}
    prefix = f"{context.services.external_url}/u/"
    links: dict[str, ReferenceLink] = {}
    for username, name in await context.tuples(users.names_of(usernames)):
        link = links[username] = ReferenceLink(prefix + username, name)
        links.setdefault(username.lower(), link)
    found = {each: links.get(each.reference.name) or links.get(each.reference.name.lower()) for each in references}
    return {each: link for each, link in found.items() if link is not None}


async def _resolve_numbers(
    context: Context, table: type, references: Sequence[tuple[ProjectReference, int]], urls: Mapping[int, str]
) -> dict[ProjectReference, ReferenceLink]:
    """The links of references to issues or to merge requests, with the ids of the projects that they name."""
    numbers: dict[int, set[int]] = {}
    for each, owner in references:
        if (iid := lookup.parse_id(each.reference.name)) is not None:
            numbers.setdefault(owner, set()).add(iid)
    if not numbers:
        return {}
    rows = {
        (owner, str(iid)): f"{title} ({state.lower()})"
        for owner, iid, title, state in await context.tuples(projects.titles_by_iid(table, numbers))
    }
    return {
        each: ReferenceLink(f"{urls[owner]}/{SECTIONS[each.reference.kind]}/{each.reference.name}", rows[owner, each.reference.name])
        for each, owner in references
        if (owner, each.reference.name) in rows
    }


async def _resolve_commits(
    context: Context, references: Sequence[tuple[ProjectReference, int]], urls: Mapping[int, str], checked: Set[int]
) -> dict[ProjectReference, ReferenceLink]:
    """The links of commit ids, also shortened ones that are unambiguous in the index of commits.

    In the projects `checked`, whose checks the viewer may see, the titles end with the states of the commits.
    """
    prefixes: dict[int, set[str]] = {}
    for each, owner in references:
        prefixes.setdefault(owner, set()).add(each.reference.name)
    if not prefixes:
        return {}
    rows = await context.tuples(commits.titles_by_prefix(prefixes))
    found = {}
    for each, owner in references:
        matching = [(oid, title) for key, oid, title in rows if key == owner and oid.startswith(each.reference.name)]
        if len(matching) == 1:
            found[each] = (owner, *matching[0])
    commit_keys = dict.fromkeys((owner, oid) for owner, oid, _ in found.values() if owner in checked)
    checks = await load_newest_checks(context, list(commit_keys)[:MAX_STATES])
    words = {key: STATE_WORDS.get(roll_up(of_commit).state) for key, of_commit in checks.items()}
    return {
        each: ReferenceLink(f"{urls[owner]}/commit/{oid}", f"{title} ({word})" if (word := words.get((owner, oid))) else title)
        for each, (owner, oid, title) in found.items()
    }

"""Contributors: the authors of a history."""

from dataclasses import dataclass
from functools import partial

from graph.context import Context
from graph.rules.git.commit_comparison import run_git
from graph.rules.git.commits import get_commit
from storage import tables
from storage.git.history import history_queries
from storage.git.history.history_queries import AuthorTotal
from storage.git.repository import Repository


@dataclass(frozen=True, slots=True)
class ContributorList:
    """The authors of the history of a commit; None and empty for an empty repository."""

    commit_oid: str | None
    authors: list[AuthorTotal]


async def list_contributors(context: Context, project: tables.Project, ref: str | None) -> ContributorList:
    """The authors of the history of a branch, tag or commit, by default the default branch. Raises NotFound, Unavailable."""
    name = project.default_branch if ref is None else ref
    if name is None:
        return ContributorList(None, [])
    oid = (await get_commit(context, project, name)).oid
    authors = await _load(context, project.id, oid)
    context.count_text(*(text for author in authors for text in (author.name, author.email)))
    return ContributorList(oid, authors)


async def _load(context: Context, project_id: int, oid: str) -> list[AuthorTotal]:
    async def fetch(keys: list[tuple[int, str]]) -> dict[tuple[int, str], list[AuthorTotal]]:
        return {key: await run_git(context, key[0], partial(_read, key[1])) for key in keys}

    return await context.loader("contributors", fetch).get((project_id, oid)) or []


def _read(oid: str, repository: Repository) -> list[AuthorTotal]:
    return history_queries.list_contributors(repository, oid)

"""What a push asks to have built: `.gitlab-ci.yml` is read at each commit that a ref has moved to, outside of any transaction."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import orjson
import structlog

from graph.rules.ci import reading
from graph.rules.ci.documents import LARGEST
from graph.rules.ci.problems import ConfigError
from graph.rules.ci.reading import FILE
from graph.rules.ci.selecting import LONGEST_REF, Config, jobs_for
from storage.git import trees
from storage.git.program import GitFailed
from storage.git.pushes import Update
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository, Repository, UnknownCommit

MOST_REFS = 100
"""Branches and tags of one push that are built, in the order of the push."""
MOST_KEPT = 4 * 1024 * 1024
"""Bytes of the jobs of all refs of one push; a job counts as LEAST_KEPT at least."""
LEAST_KEPT = 1024
SECONDS = 10.0
"""The longest that the files of one push are read; what is left then is not built."""

BRANCHES = "refs/heads/"
TAGS = "refs/tags/"
SKIP = re.compile(r"\[(?:ci skip|skip ci)\]", re.IGNORECASE)

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be built of the commit `sha` for a branch or tag: `jobs`, as a pipeline keeps them.

    `error`: the file cannot be read, and why. `skipped`: the commit's message says that nothing shall be built.
    """

    sha: str
    ref: str
    tag: bool
    before: str | None
    jobs: tuple[dict[str, Any], ...] = ()
    error: str | None = None
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class _File:
    """What stands in FILE at a commit; `problem` says why it cannot be read."""

    oid: str
    text: str = ""
    problem: str | None = None


async def plans(
    repositories: Repositories, project_id: int, updates: Sequence[Update], path: Callable[[], Awaitable[str | None]]
) -> dict[Update, Plan]:
    """The plans of those refs that something is to be done for. `path` gives the project's full path, None where it has no builds.

    A repository that cannot be read has none.
    """
    moved = [update for update in dict.fromkeys(updates) if _is_built(update)]
    if not moved:
        return {}
    if len(moved) > MOST_REFS:
        log.warning("not all refs of a push are built", project_id=project_id, count=len(moved), built=MOST_REFS)
    try:
        found = await repositories.read(project_id, lambda repository: _files(repository, moved[:MOST_REFS]))
        # Most repositories have no such file, and are asked nothing more.
        full_path = await path() if found else None
        if full_path is None:
            return {}
        return await repositories.read(project_id, lambda _: _planned(project_id, full_path, found))
    except (NotARepository, GitFailed) as error:
        log.error("builds not planned", project_id=project_id, error=str(error))
        return {}


def _is_built(update: Update) -> bool:
    name = _name(update)
    storable = not any(letter == "\ufffd" or "\ud800" <= letter <= "\udfff" for letter in name)
    return update.new is not None and update.ref.startswith((BRANCHES, TAGS)) and storable and len(name) <= LONGEST_REF


def _name(update: Update) -> str:
    return update.ref.removeprefix(BRANCHES).removeprefix(TAGS)


def _files(repository: Repository, updates: Sequence[Update]) -> list[tuple[Update, Plan, _File]]:
    """Those of the updates whose commit has the file, what is known of them without it, and the file."""
    found: list[tuple[Update, Plan, _File]] = []
    read: dict[tuple[str, str], _File] = {}
    for update in updates:
        sha = repository.commit_behind(update.new) if update.new else None
        try:
            blob = trees.find_blob(repository, sha, FILE) if sha else None
            if sha is None or blob is None:
                continue
            message = repository.commit(sha).message
        except UnknownCommit:
            continue
        if blob not in read:
            read[blob] = _read(repository, *blob)
        plan = Plan(sha, _name(update), update.ref.startswith(TAGS), update.old, skipped=SKIP.search(message) is not None)
        found.append((update, plan, read[blob]))
    return found


def _read(repository: Repository, oid: str, mode: str) -> _File:
    blob = trees.read_blob(repository, oid, mode, FILE)
    if mode == "120000":
        return _File(oid, problem="The file is a symbolic link; it must stand there itself.")
    if blob.size > LARGEST:
        return _File(oid, problem=f"The file has {blob.size} bytes; it may have {LARGEST}.")
    if blob.is_binary or blob.text is None:
        return _File(oid, problem="The file is binary; it must be text.")
    return _File(oid, blob.text)


def _planned(project_id: int, path: str, found: Sequence[tuple[Update, Plan, _File]]) -> dict[Update, Plan]:
    planned: dict[Update, Plan] = {}
    configs: dict[str, Config | str] = {}
    room, deadline = MOST_KEPT, monotonic() + SECONDS
    for update, plan, file in found:
        if plan.skipped:
            planned[update] = plan
            continue
        if room <= 0 or monotonic() > deadline:
            log.warning("not all refs of a push are built", project_id=project_id, count=len(found), built=len(planned))
            break
        if file.oid not in configs:
            configs[file.oid] = _config(project_id, file)
        config = configs[file.oid]
        if isinstance(config, str):
            planned[update] = replace(plan, error=config)
        elif jobs := tuple(job.kept() for job in jobs_for(config, plan.ref, tag=plan.tag, path=path)):
            planned[update] = replace(plan, jobs=jobs)
            room -= sum(max(len(orjson.dumps(job)), LEAST_KEPT) for job in jobs)
    return planned


def _config(project_id: int, file: _File) -> Config | str:
    """The file's jobs, or what is wrong with it."""
    if file.problem is not None:
        return file.problem
    try:
        return reading.read(file.text)
    except ConfigError as error:
        return str(error)
    except Exception as error:
        # A push that is in the repository must be recorded, whatever a file in it does to its reader.
        log.error("builds not planned", project_id=project_id, exc_info=error)
        return "The file cannot be read."

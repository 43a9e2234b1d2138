"""Plans pipelines for a push: reads `.gitlab-ci.yml` at each new head, outside of any transaction."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import orjson
import structlog

from graph.rules.ci import config_parser
from graph.rules.ci.commit_files import CommitFiles
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_expansion import FileReader
from graph.rules.ci.config_parser import CONFIG_FILENAME
from graph.rules.ci.config_versions import CiVersion
from graph.rules.ci.job_rules import RuleContext, push_variables
from graph.rules.ci.job_selection import MAX_REF_LENGTH, PipelineConfig, select_jobs
from graph.rules.ci.yaml_documents import MAX_BYTES
from storage.git import trees
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES, TAGS
from storage.git.repositories import Repositories
from storage.git.repository import DamagedRepository, NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError

MAX_REFS = 100
"""Branches and tags of one push that are built, in the order of the push."""
MAX_PLANNED_BYTES = 4 * 1024 * 1024
"""Bytes of the jobs of all refs of one push; a job counts as at least MIN_JOB_BYTES."""
MIN_JOB_BYTES = 1024
MAX_SECONDS = 10.0
"""Time limit for parsing the files of one push; refs that remain are not built."""

SKIP_PATTERN = re.compile(r"\[(?:ci skip|skip ci)\]", re.IGNORECASE)

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The pipeline to create for the commit `sha` on a branch or tag, with its serialized `jobs`.

    `error` is why the file is invalid. `skipped` is True when the commit's message requests no pipeline (`[ci skip]`).
    """

    sha: str
    ref: str
    tag: bool
    before: str | None
    jobs: tuple[dict[str, Any], ...] = ()
    error: str | None = None
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class _ConfigFile:
    """The content of CONFIG_FILENAME at a commit; `problem` says why it cannot be read."""

    oid: str
    text: str = ""
    problem: str | None = None


async def plan_updates(
    repositories: Repositories,
    project_id: int,
    updates: Sequence[RefCommand],
    load_path: Callable[[], Awaitable[str | None]],
    version: CiVersion | None = None,
) -> dict[RefCommand, PipelinePlan]:
    """The plans of those ref updates that have one. A repository that cannot be read has none.

    `load_path` returns the project's full path, or None when builds are disabled. `version` is that of files that name none.
    """
    built_updates = [update for update in dict.fromkeys(updates) if _is_built(update)]
    if not built_updates:
        return {}
    if len(built_updates) > MAX_REFS:
        log.warning("refs of a push not built", project_id=project_id, count=len(built_updates), built=MAX_REFS)
    try:
        found = await repositories.read(project_id, lambda repository: _read_files(repository, built_updates[:MAX_REFS]))
        # Most repositories have no such file and need no further queries.
        full_path = await load_path() if found else None
        if full_path is None:
            return {}
        return await repositories.read(project_id, lambda repository: _FilePlanner(repository, project_id, full_path, version).plan(found))
    except (NotARepository, GitCommandError) as error:
        log.error("pipelines could not be planned", project_id=project_id, error=str(error))
        return {}


async def plan_ref(
    repositories: Repositories, project_id: int, ref: str, oid: str, path: str, version: CiVersion | None = None
) -> PipelinePlan | None:
    """The plan of a branch or tag, by its complete name, that is at this object, as if it was pushed now; None if it has no jobs.

    `path` is the full path of the project. A message that requests no pipeline is ignored.
    """
    update = RefCommand(ref, None, oid)
    if not _is_built(update):
        return None

    def work(repository: Repository) -> PipelinePlan | None:
        found = [(each, replace(plan, skipped=False), file) for each, plan, file in _read_files(repository, [update])]
        plan = _FilePlanner(repository, project_id, path, version, source="trigger").plan(found).get(update)
        return plan if plan is not None and plan.jobs else None

    try:
        return await repositories.read(project_id, work)
    except (NotARepository, GitCommandError) as error:
        log.error("pipeline could not be planned", project_id=project_id, error=str(error))
        return None


def _is_built(update: RefCommand) -> bool:
    name = _ref_name(update)
    storable = not any(letter == "\ufffd" or "\ud800" <= letter <= "\udfff" for letter in name)
    return update.new is not None and update.ref.startswith((BRANCHES, TAGS)) and storable and len(name) <= MAX_REF_LENGTH


def _ref_name(update: RefCommand) -> str:
    return update.ref.removeprefix(BRANCHES).removeprefix(TAGS)


def _read_files(repository: Repository, updates: Sequence[RefCommand]) -> list[tuple[RefCommand, PipelinePlan, _ConfigFile]]:
    """Read the file for each update whose commit has one: (update, plan without jobs, file)."""
    found: list[tuple[RefCommand, PipelinePlan, _ConfigFile]] = []
    read: dict[tuple[str, str], _ConfigFile] = {}
    for update in updates:
        sha = repository.peel_to_commit(update.new) if update.new else None
        try:
            blob = trees.find_blob(repository, sha, CONFIG_FILENAME) if sha else None
            if sha is None or blob is None:
                continue
            message = repository.commit(sha).message
        except UnknownCommit:
            continue
        if blob not in read:
            read[blob] = _read_file(repository, *blob)
        plan = PipelinePlan(
            sha, _ref_name(update), update.ref.startswith(TAGS), update.old, skipped=SKIP_PATTERN.search(message) is not None
        )
        found.append((update, plan, read[blob]))
    return found


def _read_file(repository: Repository, oid: str, mode: str) -> _ConfigFile:
    blob = trees.read_blob(repository, oid, mode, CONFIG_FILENAME)
    if mode == "120000":
        return _ConfigFile(oid, problem="The file is a symbolic link. It must be a regular file.")
    if blob.size > MAX_BYTES:
        return _ConfigFile(oid, problem=f"The file has {blob.size} bytes; the limit is {MAX_BYTES}.")
    if blob.is_binary or blob.text is None:
        return _ConfigFile(oid, problem="The file is binary. It must be text.")
    return _ConfigFile(oid, blob.text)


@dataclass(slots=True)
class _FilePlanner:
    """Plans the pipelines of a push from its files, within bounds for the whole push."""

    repository: Repository
    project_id: int
    path: str
    version: CiVersion | None
    source: str = "push"
    configs: dict[tuple[str, str], PipelineConfig | str] = field(default_factory=dict)

    def plan(self, found: Sequence[tuple[RefCommand, PipelinePlan, _ConfigFile]]) -> dict[RefCommand, PipelinePlan]:
        planned: dict[RefCommand, PipelinePlan] = {}
        remaining_bytes, deadline = MAX_PLANNED_BYTES, monotonic() + MAX_SECONDS
        for update, plan, file in found:
            if plan.skipped:
                planned[update] = plan
                continue
            if remaining_bytes <= 0 or monotonic() > deadline:
                log.warning("refs of a push not built", project_id=self.project_id, count=len(found), built=len(planned))
                break
            result = self._plan_file(plan, file)
            if result is not None:
                planned[update] = result
                remaining_bytes -= sum(max(len(orjson.dumps(job)), MIN_JOB_BYTES) for job in result.jobs)
        return planned

    def _plan_file(self, plan: PipelinePlan, file: _ConfigFile) -> PipelinePlan | None:
        """The plan with its jobs or its error; None without jobs."""
        # Another commit with this file may include other files.
        key = file.oid, plan.sha if "include" in file.text else ""
        if key not in self.configs:
            self.configs[key] = self._parse_file(plan.sha, file)
        config = self.configs[key]
        if isinstance(config, str):
            return replace(plan, error=config)
        variables = push_variables(self.project_id, plan.ref, tag=plan.tag, sha=plan.sha, before=plan.before, source=self.source)
        rule_context = RuleContext(variables, CommitFiles(self.repository, plan.sha, plan.before))
        try:
            jobs = select_jobs(config, plan.ref, tag=plan.tag, path=self.path, rule_context=rule_context)
        except PipelineConfigError as error:
            return replace(plan, error=str(error))
        return replace(plan, jobs=tuple(job.serialize() for job in jobs)) if jobs else None

    def _parse_file(self, sha: str, file: _ConfigFile) -> PipelineConfig | str:
        """The parsed file, or the error message."""
        if file.problem is not None:
            return file.problem
        try:
            return config_parser.parse_config(file.text, file_reader(self.repository, sha), self.version)
        except PipelineConfigError as error:
            return str(error)
        except Exception as error:
            # The repository already has the push, so it must be recorded even if the parser fails.
            log.error("pipelines could not be planned", project_id=self.project_id, exc_info=error)
            return "The file cannot be read."


def file_reader(repository: Repository, sha: str) -> FileReader:
    """Reads the files of a commit that its CI file includes."""

    def read(path: str) -> str:
        try:
            blob = trees.find_blob(repository, sha, path)
            file = _read_file(repository, *blob) if blob is not None else None
        except (UnknownCommit, DamagedRepository):
            file = None
        if file is None:
            raise PipelineConfigError.from_message("The commit has no such file.")
        if file.problem is not None:
            raise PipelineConfigError.from_message(file.problem)
        return file.text

    return read

"""Commits of files that callers send: written without a push, with the checks and effects of one.

1. The commit is written on the current head of the branch, before any transaction. Unreachable objects are harmless.
2. One transaction checks again and moves the branch by compare-and-swap.

If the branch has moved meanwhile, both are repeated on the new head, unless another commit has changed one of the files: then the
caller gets a Conflict, and no change is lost.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import structlog

from graph.context import Context
from graph.errors import Conflict, Forbidden, Invalid, Required, Taken, TooLarge, UnreadableRepository, UserError
from graph.operations.transaction import steps
from graph.rules import lookup, validation
from graph.rules.git import ref_updates, refs
from graph.rules.git.commits import run_in_repository
from graph.rules.git.ref_updates import PreparedUpdates
from graph.rules.git.refs import RefConflict
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.git import trees
from storage.git.commit_writer import CommitSignature, write_commit_of_tree
from storage.git.diffs.special_files import InvalidContent, check_contents
from storage.git.diffs.tree_changes import InvalidPath, PathTaken, TreeChange, check_path, write_tree
from storage.git.protocol.push import PushRule, RefCommand
from storage.git.refs.ref_names import BRANCHES, NULL_ID
from storage.git.repository import NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError

MAX_ATTEMPTS = 5
"""How often a commit is attempted while concurrent updates move the branch."""

_WHITESPACE = re.compile(r"\s+")

log = structlog.get_logger("graph")


class FileActionKind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ContentEncoding(StrEnum):
    TEXT = "text"
    BASE64 = "base64"


@dataclass(frozen=True, slots=True)
class FileAction:
    """What to do to a file. `content` is None to delete it. `expected_oid` is the blob that the caller has seen, if it is known."""

    kind: FileActionKind
    path: str
    content: bytes | None = None
    expected_oid: str | None = None


@dataclass(frozen=True, slots=True)
class AddedCommit:
    """A commit that was added to a branch, and the paths that it changed."""

    project_id: int
    oid: str
    branch_name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit whose objects are written. `blobs` are the ids of the files before it, by path; None for those that did not exist."""

    updates: PreparedUpdates
    blobs: Mapping[str, str | None]


async def decode_content(context: Context, content: str, encoding: ContentEncoding) -> bytes:
    """The bytes of a file that a caller sent. Raises Invalid for what is not base64, TooLarge."""
    limit = context.services.max_file_bytes
    if encoding is ContentEncoding.TEXT:
        try:
            decoded = content.encode()
        except UnicodeEncodeError as error:
            raise Invalid("content", "The content has characters that cannot be encoded") from error
    else:
        decoded = await asyncio.to_thread(_decode_base64, content)
    if len(decoded) > limit:
        raise TooLarge("content", f"may have at most {limit} bytes")
    return decoded


def _decode_base64(content: str) -> bytes:
    try:
        return base64.b64decode(_WHITESPACE.sub("", content), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("content", "The content is not valid base64") from error


async def create_commit(
    context: Context,
    project: tables.Project,
    branch: str,
    message: str,
    actions: Sequence[FileAction],
    *,
    record: Callable[[Context, str], Awaitable[object]] | None = None,
) -> AddedCommit:
    """Commit changes of files to a branch, or as the first commit of an empty repository.

    `record` is called with the id of the commit in the transaction that moves the branch. The operation must not have changed anything
    yet. Raises NotFound, Forbidden, Required, Invalid, Taken, Conflict, Unavailable.
    """
    _validate(branch, message, actions)
    step = await steps(context)
    blobs: Mapping[str, str | None] | None = None
    for attempt in range(MAX_ATTEMPTS):
        async with refs.move_lock(context.services, project.id) if attempt else nullcontext():
            prepared = await _prepare(context, project.id, branch, message, actions, blobs)
            try:
                await step(partial(_move_branch, project.id, prepared, record))
            except RefConflict as error:
                log.info("commit repeated", project_id=project.id, reason=str(error), request_id=context.request_id)
                blobs = prepared.blobs
                continue
        (update,) = prepared.updates.updates
        assert update.new is not None  # noqa: S101 - _prepare
        return AddedCommit(project.id, update.new, branch, tuple(action.path for action in actions))
    raise Conflict("branch", "The branch keeps moving. Retry the request.")


def _validate(branch: str, message: str, actions: Sequence[FileAction]) -> None:
    if reason := ref_updates.invalid_name_reason(BRANCHES + branch):
        raise Invalid("branch", f"The branch name is invalid: {reason}")
    if not message.strip():
        raise Required("message")
    validation.validate_string("message", message)
    if not actions:
        raise Required("actions")
    seen = set[str]()
    for action in actions:
        try:
            check_path(action.path)
        except InvalidPath as error:
            raise Invalid("path", "The path is invalid: it has to stay in the repository, without names that are empty or .git") from error
        if action.path in seen:
            raise Invalid("path", "A commit changes each file once")
        seen.add(action.path)


async def _prepare(
    context: Context,
    project_id: int,
    branch: str,
    message: str,
    actions: Sequence[FileAction],
    blobs: Mapping[str, str | None] | None,
) -> PreparedCommit:
    """Write the commit on the current head. `blobs` are those of an earlier attempt, which must not have changed."""
    async with context.read_only() as reader:
        project = await lookup.get_project(reader, str(project_id))
        await require(reader, Action.PUSH_CODE, project)
        since = project.refs_version
        head = await refs.find(reader, project_id, BRANCHES + branch)
        if head is None and await refs.in_folder(reader, project_id, BRANCHES):
            raise Invalid("branch", "The branch does not exist: files are committed to a branch")
        # The id stands for the commit that is not written yet.
        await _authorize(reader, project, RefCommand(BRANCHES + branch, head, NULL_ID))
    signature = CommitSignature(context.viewer.name, context.viewer.email, context.now())

    def work(repository: Repository) -> tuple[str, dict[str, str | None]]:
        current = {action.path: trees.find_blob(repository, head, action.path) if head else None for action in actions}
        found = {path: entry[0] if entry else None for path, entry in current.items()}
        if blobs is not None and found != blobs:
            raise Conflict("path", "Another commit has changed the file in the meantime. Reload it and retry.")
        changes = []
        for action in actions:
            entry = current[action.path]
            if (error := _find_error(action, found[action.path])) is not None:
                raise error
            changes.append(TreeChange(action.path, action.content, entry[1] if entry else None))
        check_contents((action.path, action.content) for action in actions if action.content is not None)
        tree = write_tree(repository, head, changes)
        return write_commit_of_tree(repository, [head] if head else [], tree, message, signature), found

    try:
        new, found = await run_in_repository(context, project_id, work)
        updates = await ref_updates.prepare_updates(context.services, project_id, [RefCommand(BRANCHES + branch, head, new)], since=since)
    except PathTaken as error:
        raise Taken("path", "The path is a directory, or a part of it is a file") from error
    except InvalidContent as error:
        raise Invalid("content", "Git refuses .gitmodules and .gitattributes with such content, which can harm clients") from error
    except (NotARepository, UnknownCommit, GitCommandError) as error:
        log.warning("commit could not be prepared", project_id=project_id, error=str(error), request_id=context.request_id)
        raise UnreadableRepository from error
    return PreparedCommit(updates, found)


def _find_error(action: FileAction, blob: str | None) -> UserError | None:
    if action.kind is FileActionKind.CREATE:
        return Taken("path", "A file with the same name already exists") if blob is not None else None
    if blob is None:
        return Invalid("path", "The file does not exist")
    if action.expected_oid is not None and action.expected_oid.lower() != blob:
        return Conflict("expectedOid", "Another commit has changed the file in the meantime. Reload it and retry.")
    return None


async def _move_branch(
    project_id: int, prepared: PreparedCommit, record: Callable[[Context, str], Awaitable[object]] | None, context: Context
) -> None:
    """The transaction. Raises RefConflict, NotFound, Forbidden."""
    locked = await ref_updates.lock_projects(context, project_id, prepared.updates)
    updates = prepared.updates.updates
    await require(context, Action.PUSH_CODE, locked)
    await _authorize(context, locked, updates[0])
    await refs.require_movable(context, project_id, updates)
    await ref_updates.apply_updates(context, locked, prepared.updates)
    if record is not None:
        assert updates[0].new is not None  # noqa: S101 - _prepare
        await record(context, updates[0].new)


async def _authorize(context: Context, project: tables.Project, update: RefCommand) -> None:
    """Require that the viewer may push a commit to the branch. Raises Forbidden."""
    (decision,) = await ref_updates.authorize_updates(context, project, [update])
    if decision.rule is PushRule.REJECT:
        raise Forbidden(decision.reason, subject="Branch")

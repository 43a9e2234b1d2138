"""Builds rows for tests: `make.project(owner=user)`. What is not given is made up, and differs from call to call."""

import base64
import shutil
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from argon2 import PasswordHasher
from sqlalchemy import inspect
from sqlalchemy.orm import make_transient_to_detached

from graph.context import Services
from graph.jobs.runner_queue import RunnerQueue
from storage import tables
from storage.database.clock import now
from storage.database.column_types import metadata
from storage.database.engine import Database
from storage.git.importing.repository_import import import_repository
from storage.git.repository import Repository
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import new_key
from storage.objects.uploads import UploadStore, new_secret
from storage.secrets import Passwords, TokenCipher, digest_token, load_key
from storage.tables import AccessLevel, CheckStatus, CounterKind, IssueState, MergeRequestState, NamespaceKind, TokenScope, Visibility
from storage.tables.accounts.identities import normalize_uid
from storage.tables.accounts.users import PRIVATE_TOKEN
from storage.tables.base import Row
from storage.tables.builds.commit_statuses import FINISHED
from tests.support.database.databases import share_compiled_statements
from tests.support.git.git_history import make_history
from tests.support.git.repositories import EditableRepositories

R = TypeVar("R", bound=Row)

FAST_PASSWORD_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""Hashes in microseconds what takes the service a tenth of a second on purpose."""

HISTORY_BRANCH = "master"
"""The default branch of what `make_history` makes."""

MAX_SINGLE_INSERTS = 3
"""Of more rows at once the ORM makes fewer statements."""
TABLE_ORDER = {table.name: place for place, table in enumerate(metadata.sorted_tables)}
"""Tables after those that they refer to."""

EXTERNAL_URL = "http://forge.example"

LINEAR_COMMITS_AT = datetime(2016, 1, 1, tzinfo=UTC)
"""When the commits of `Make.line` were made, or before."""


def token_of(user: tables.User) -> str:
    """The private token of a user that `make` built."""
    return f"token-{user.username}"


def alter_token(token: str) -> str:
    """A token that is wrong in its last character."""
    return token[:-1] + ("y" if token.endswith("x") else "x")


def ssh_key(number: int) -> str:
    """A public key of this number: made of a counted modulus, which is quicker than making real ones."""

    def part(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    blob = part(b"ssh-rsa") + part(b"\x01\x00\x01") + part(b"\x00\xc1" + number.to_bytes(4, "big") * 63 + b"\x01\x01\x01")
    return f"ssh-rsa {base64.b64encode(blob).decode()}"


class DataFactory:
    imports: dict[str, Path] = {}

    def __init__(self, services: Services, folder: Path) -> None:
        self.services = services
        self.folder = folder
        self._numbers = count(1)
        self._runner_tokens: dict[int, str] = {}
        self._personal: dict[int, int] = {}
        """The ids of the personal namespaces of its users."""

    async def save(self, *rows: Any, then: Callable[[], Iterable[Any]] = tuple) -> None:
        """Writes the rows, and then those that `then` makes of them when they have their ids."""
        database = self.services.database
        if not rows:
            return
        is_new = all(inspect(row).key is None and getattr(row, "id", 0) is None for row in rows)
        if is_new and (database.dialect == "sqlite" or len(rows) <= MAX_SINGLE_INSERTS):
            # Each is inserted without the ORM, which takes a fifth of the time; PostgreSQL then has one statement in a transaction.
            rows = tuple(sorted(rows, key=lambda row: TABLE_ORDER[row.__tablename__]))
            for batch in [rows] if database.dialect == "sqlite" else [[row] for row in rows]:
                await self._insert(batch)
        else:
            async with database.write_session() as session:
                session.add_all(rows)
                await session.commit()
        await self.save(*then())

    async def _insert(self, rows: Sequence[Any]) -> None:
        async with self.services.database.write_session() as session:
            for row in rows:
                session.add_deferred(row)
            await session.commit()
        for row in rows:
            if inspect(row).key is None:
                make_transient_to_detached(row)
        if isinstance(self.services.repositories, EditableRepositories):
            self.services.repositories.note_commit()

    async def fetch(self, table: type[R], id: int) -> R | None:
        """The row as it is in the database now."""
        async with self.services.database.read_session() as session:
            found: R | None = await session.get(table, id)
            return found

    async def count(self, table: type[Row]) -> int:
        from sqlalchemy import func, select

        async with self.services.database.read_session() as session:
            return int(await session.scalar(select(func.count()).select_from(table)))

    async def user(self, username: str | None = None, **columns: Any) -> tables.User:
        """A user with a private token (`token_of`), the personal namespace, and the primary e-mail address."""
        username = username or f"user{next(self._numbers)}"
        values: dict[str, Any] = {"name": username.title(), "email": f"{username}@example.org", "confirmed": True, **columns}
        user = tables.User(username=username, **values)
        token = token_of(user)
        sealed = self.services.cipher.encrypt(token)
        namespace = tables.Namespace(kind=NamespaceKind.USER, name=user.name, path=username, path_key=username.lower())

        def belongings() -> Iterable[Any]:
            namespace.owner_id = user.id
            yield namespace
            yield tables.Email(user_id=user.id, email=user.email, is_primary=True)
            if user.provider and user.extern_uid:
                yield tables.Identity(user_id=user.id, provider=user.provider, uid=normalize_uid(user.provider, user.extern_uid))
            yield tables.Token(user_id=user.id, name=PRIVATE_TOKEN, digest=digest_token(token), sealed=sealed, created_at=now())

        await self.save(user, then=belongings)
        self._personal[user.id] = namespace.id
        return user

    async def access_token(self, user: tables.User, *scopes: TokenScope, **columns: Any) -> str:
        """The value of a new access token with these scopes."""
        value = f"access{next(self._numbers)}"
        values: dict[str, Any] = {"name": value, "sealed": "", "created_at": now(), **columns}
        await self.save(tables.Token(user_id=user.id, digest=digest_token(value), scopes=",".join(scopes), **values))
        return value

    async def settings(self, **columns: Any) -> None:
        """Changes the settings of the instance."""
        from sqlalchemy import update

        async with self.services.database.write_session() as session:
            await session.execute(update(tables.Settings).values(columns))
            await session.commit()

    async def admin(self) -> tables.User:
        return await self.user(admin=True)

    async def group(self, *, owner: tables.User | None = None, members: Any = None, **columns: Any) -> tables.Namespace:
        path = columns.pop("path", f"group{next(self._numbers)}")
        group = tables.Namespace(kind=NamespaceKind.GROUP, path=path, path_key=path.lower(), **{"name": path.title(), **columns})
        levels = {user.id: level for user, level in _pairs(members)} | ({owner.id: AccessLevel.OWNER} if owner else {})
        await self.save(
            group,
            then=lambda: [tables.GroupMember(group_id=group.id, user_id=key, access_level=int(level)) for key, level in levels.items()],
        )
        return group

    async def project(
        self,
        *,
        owner: tables.User | None = None,
        group: tables.Namespace | None = None,
        members: Any = None,
        visibility: Visibility = Visibility.PRIVATE,
        history: Mapping[str, Any] | None = None,
        source: Path | None = None,
        **columns: Any,
    ) -> tables.Project:
        """A project in the owner's namespace or a group. `members` are (user, level) pairs; `history` makes a repository
        (`make_history`'s arguments), `source` copies one; without them the project has an empty repository."""
        path = columns.pop("path", f"project{next(self._numbers)}")
        if group is None:
            owner = owner or await self.user()
            namespace_id = self._personal[owner.id] if owner.id in self._personal else await self._namespace_of(owner)
        else:
            namespace_id = group.id
        project = tables.Project(
            namespace_id=namespace_id,
            creator_id=owner.id if owner else None,
            path=path,
            path_key=path.lower(),
            visibility_level=int(visibility),
            **{"name": path.title(), **columns},
        )
        if history is not None:
            project.default_branch = HISTORY_BRANCH
        await self.save(
            project,
            then=lambda: [
                tables.ProjectMember(project_id=project.id, user_id=user.id, access_level=int(level)) for user, level in _pairs(members)
            ],
        )
        if source is not None:
            shutil.copytree(self.imported(source), self.services.repositories.path_of(project.id))
            project.default_branch = Repository.open(self.services.repositories.path_of(project.id)).default_branch()
            await self.save(project)
        else:
            made = self.empty_repository() if history is None else self.repository_with_history(history)
            shutil.copytree(made, self.services.repositories.path_of(project.id))
        if source is not None or history is not None:
            stored = Repository.open(self.services.repositories.path_of(project.id)).stored_refs()
            await self.save(*(tables.GitRef(project_id=project.id, name=name, oid=oid, peeled_oid=peeled) for name, oid, peeled in stored))
        if isinstance(self.services.repositories, EditableRepositories):
            await self.services.repositories.project()
        return project

    async def _namespace_of(self, owner: tables.User) -> int:
        from sqlalchemy import select

        async with self.services.database.read_session() as session:
            return int(await session.scalar(select(tables.Namespace.id).where(tables.Namespace.owner_id == owner.id)))

    async def indexed(self, project: tables.Project) -> tables.Project:
        """Writes the project's branch heads and commits into the index, as after an import."""
        from graph.rules.git import commit_index

        if isinstance(self.services.repositories, EditableRepositories):
            await self.services.repositories.take_over()
        await commit_index.index_imported(self.services, project.id)
        return project

    async def linear_commits(
        self, project: tables.Project, count: int, *, after: str | None = None, merging: str | None = None, oids: Any = None
    ) -> list[str]:
        """This number of commits (of these ids) in the index alone, each the first parent of the next, oldest first; returns their ids.

        They come after the commit `after`; the first of them also merges `merging`. Their dates say nothing: the younger, the earlier.
        """
        oids, rows = oids or [f"{next(self._numbers):040x}" for _ in range(count)], []
        for index, oid in enumerate(oids):
            parent = oids[index - 1] if index else after
            parents = [each for each in (parent, merging if not index else None) if each is not None]
            moment = LINEAR_COMMITS_AT - timedelta(minutes=int(oid, 16))
            words = {"author_name": "A", "author_email": "a@example.org", "committer_name": "C", "committer_email": "c@example.org"}
            row = tables.Commit(project_id=project.id, oid=oid, first_parent=parent, parents=parents, title=f"Commit {oid[-4:]}", **words)
            row.authored_at = row.committed_at = moment
            rows.append(row)
        await self.save(*rows)
        return oids

    async def branch_move(self, project: tables.Project, oid: str | None, moved_at: datetime, name: str = "master") -> None:
        """Writes down that a branch came to a commit (None: was deleted) at this moment; the branch itself stays as it is."""
        await self.save(tables.BranchMove(project_id=project.id, name=name, oid=oid, moved_at=moved_at))

    def empty_repository(self) -> Path:
        """A repository without a commit as the service makes it; made once a run, to be copied."""
        if "" not in self.imports:
            Repository.create(self.folder / "empty" / "1.git").handle.free()
            self.imports[""] = self.folder / "empty" / "1.git"
        return self.imports[""]

    def imported(self, source: Path) -> Path:
        """The repository that the service makes of `source`; sources with equal references are imported once a run."""
        handle = Repository.open(source).handle
        references = sorted((name, str(handle.lookup_reference(name).target)) for name in (*handle.references, "HEAD"))
        key = f"{references} shallow: {handle.is_shallow}"
        if key not in self.imports:
            folder = self.folder / f"import{len(self.imports)}"
            import_repository(source, folder / "1.git")
            self.imports[key] = folder / "1.git"
        return self.imports[key]

    def repository_with_history(self, history: Mapping[str, Any]) -> Path:
        """A repository with this history as the service imports it; made once a run, to be copied."""
        key = repr(sorted(history.items()))
        if key not in self.imports:
            folder = self.folder / f"history{len(self.imports)}"
            make_history(folder / "source", **history)
            import_repository(folder / "source", folder / "1.git")
            self.imports[key] = folder / "1.git"
        return self.imports[key]

    async def member(self, project: tables.Project, user: tables.User, level: int) -> tables.ProjectMember:
        member = tables.ProjectMember(project_id=project.id, user_id=user.id, access_level=int(level))
        await self.save(member)
        return member

    async def milestone(self, project: tables.Project, **columns: Any) -> tables.Milestone:
        iid = await self._iid(project, CounterKind.MILESTONE)
        milestone = tables.Milestone(project_id=project.id, iid=iid, **{"title": f"Milestone {iid}", **columns})
        await self.save(milestone)
        return milestone

    async def label(self, project: tables.Project, title: str | None = None, **columns: Any) -> tables.Label:
        label = tables.Label(project_id=project.id, title=title or f"label{next(self._numbers)}", **{"color": "#428BCA", **columns})
        await self.save(label)
        return label

    async def issue(
        self, project: tables.Project, *, author: tables.User | None = None, labels: list[tables.Label] | None = None, **columns: Any
    ) -> tables.Issue:
        iid = await self._iid(project, CounterKind.ISSUE)
        author_id = author.id if author else project.creator_id or (await self.user()).id
        issue = tables.Issue(project_id=project.id, iid=iid, author_id=author_id, **{"title": f"Issue {iid}", **columns})
        if issue.state is IssueState.CLOSED and issue.closed_at is None:
            issue.closed_at = issue.updated_at
        await self.save(issue)
        await self.save(*(tables.IssueLabel(issue_id=issue.id, label_id=label.id) for label in labels or ()))
        return issue

    async def merge_request(
        self, project: tables.Project, *, author: tables.User | None = None, labels: list[tables.Label] | None = None, **columns: Any
    ) -> tables.MergeRequest:
        """One into `master` from a branch of the project that no other comes from; neither has to be there, and nothing is compared."""
        iid = await self._iid(project, CounterKind.MERGE_REQUEST)
        author_id = author.id if author else project.creator_id or (await self.user()).id
        values = {"title": f"Merge request {iid}", "source_branch": f"branch{iid}", "target_branch": "master", **columns}
        values.setdefault("source_project_id", project.id)
        row = tables.MergeRequest(project_id=project.id, iid=iid, author_id=author_id, **values)
        if row.state is MergeRequestState.CLOSED and row.closed_at is None:
            row.closed_at = row.updated_at
        if row.state is MergeRequestState.MERGED and row.merged_at is None:
            row.merged_at = row.updated_at
        await self.save(row)
        await self.save(*(tables.MergeRequestLabel(merge_request_id=row.id, label_id=label.id) for label in labels or ()))
        return row

    async def snippet(self, project: tables.Project, *, author: tables.User | None = None, **columns: Any) -> tables.Snippet:
        """One that everybody sees who sees the project, unless `visibility_level` says otherwise."""
        author_id = author.id if author else project.creator_id or (await self.user()).id
        values = {"title": f"Snippet {next(self._numbers)}", "file_name": "a.rb", "content": "puts 1", "visibility_level": 2, **columns}
        snippet = tables.Snippet(project_id=project.id, author_id=author_id, **values)
        await self.save(snippet)
        return snippet

    async def note(
        self, parent: tables.Issue | tables.MergeRequest | tables.Snippet, *, author: tables.User | None = None, **columns: Any
    ) -> tables.Note:
        author_id = author.id if author else parent.author_id
        keys = {tables.Issue: "issue_id", tables.MergeRequest: "merge_request_id", tables.Snippet: "snippet_id"}
        columns[keys[type(parent)]] = parent.id
        note = tables.Note(project_id=parent.project_id, author_id=author_id, **{"body": f"Note {next(self._numbers)}", **columns})
        await self.save(note)
        return note

    async def thread(self, merge_request: tables.MergeRequest, *, author: tables.User | None = None, **columns: Any) -> tables.ReviewThread:
        """One on the whole merge request, unless `columns` have a line, with its first note."""
        author_id = author.id if author else merge_request.author_id
        keys = {"project_id": merge_request.project_id, "merge_request_id": merge_request.id}
        thread = tables.ReviewThread(**keys, author_id=author_id, **columns)
        await self.save(thread)
        await self.note(merge_request, author=author, thread_id=thread.id)
        return thread

    async def upload(
        self, project: tables.Project, content: bytes = b"bytes", *, author: tables.User | None = None, **columns: Any
    ) -> tables.Upload:
        incoming = self.services.uploads.receive()
        await incoming.write(content)
        await incoming.finish()
        author_id = author.id if author else project.creator_id or (await self.user()).id
        values = {"name": f"file{next(self._numbers)}.txt", "secret": new_secret(), "size": len(content), **columns}
        upload = tables.Upload(project_id=project.id, author_id=author_id, **values)
        self.services.uploads.store(incoming.ticket, project.id, upload.secret)
        await self.save(upload)
        return upload

    async def artifact(self, build: tables.Build, content: bytes = b"bytes", **columns: Any) -> tables.Artifact:
        values = {"filename": "artifacts.zip", "size": len(content), "key": new_key(), **columns}
        await self.services.objects.put_bytes(values["key"], content)
        artifact = tables.Artifact(project_id=build.project_id, build_id=build.id, **values)
        await self.save(artifact)
        return artifact

    async def environment(self, project: tables.Project, **columns: Any) -> tables.Environment:
        environment = tables.Environment(project_id=project.id, **{"name": f"place{next(self._numbers)}", **columns})
        await self.save(environment)
        return environment

    async def trace(self, build: tables.Build, *texts: str) -> tables.Build:
        """Appends these to what the build has printed, each as a part of its own."""
        for text in texts:
            part = tables.TracePart(build_id=build.id, start=build.trace_size, size=len(text.encode()), key=new_key())
            await self.services.objects.put_bytes(part.key, text.encode())
            build.trace_size += part.size
            await self.save(part, build)
        return build

    async def commit_comment(self, project: tables.Project, sha: str, *, author: tables.User, **columns: Any) -> tables.CommitComment:
        values = {"note": f"Comment {next(self._numbers)}", **columns}
        comment = tables.CommitComment(project_id=project.id, sha=sha, author_id=author.id, **values)
        await self.save(comment)
        return comment

    async def commit_status(self, project: tables.Project, sha: str, **columns: Any) -> tables.CommitStatus:
        """`status` is pending unless it is given."""
        status = tables.CommitStatus(project_id=project.id, sha=sha, **columns)
        await self.save(status)
        return status

    async def build(self, project: tables.Project, sha: str, **columns: Any) -> tables.Build:
        """One of an outside system for `master`, pending unless `status` is given, with the times that its status needs."""
        values = {"name": f"job{next(self._numbers)}", "ref": "master", **columns}
        build = tables.Build(project_id=project.id, sha=sha, **values)
        if build.status not in (CheckStatus.PENDING, CheckStatus.MANUAL):
            build.started_at = columns.get("started_at", build.created_at)
        if build.status in FINISHED:
            build.finished_at = columns.get("finished_at", build.started_at or build.created_at)
        await self.save(build)
        return build

    async def runner(self, *projects: tables.Project, **columns: Any) -> tables.Runner:
        """One that serves these projects, or every project where none is given. It calls with `runner_token`."""
        token = f"fr-{next(self._numbers):020}"
        sealed = self.services.cipher.encrypt(token)
        values = {"description": token, "token_digest": digest_token(token), "sealed_token": sealed, "shared": not projects, **columns}
        runner = tables.Runner(**values)
        await self.save(runner)
        await self.save(*(tables.RunnerProject(runner_id=runner.id, project_id=project.id) for project in projects))
        self._runner_tokens[runner.id] = token
        return runner

    def runner_token(self, runner: tables.Runner) -> str:
        return self._runner_tokens[runner.id]

    async def variable(self, project: tables.Project, key: str | None = None, value: str = "secret value") -> tables.Variable:
        sealed = self.services.cipher.encrypt(value)
        name = key or f"KEY_{next(self._numbers)}"
        variable = tables.Variable(project_id=project.id, key=name, sealed_value=sealed, size=len(value.encode()))
        await self.save(variable)
        return variable

    async def trigger(self, project: tables.Project) -> str:
        """The token of a new trigger."""
        token = f"{next(self._numbers):030x}"
        sealed = self.services.cipher.encrypt(token)
        await self.save(tables.Trigger(project_id=project.id, token_digest=digest_token(token), sealed_token=sealed))
        return token

    async def pending_build(self, project: tables.Project, *, tags: tuple[str, ...] = (), **columns: Any) -> tables.Build:
        """A build that runners may take, as a push makes them."""
        values = {"sha": "a" * 40, "ref": "master", "name": f"job{next(self._numbers)}", "commands": "true", **columns}
        build = tables.Build(project_id=project.id, tags=sorted(tags), **{"queue": ",".join(sorted(tags)), **values})
        await self.save(build)
        return build

    async def _iid(self, project: tables.Project, kind: CounterKind) -> int:
        from storage.tables import counters

        async with self.services.database.write_session() as session:
            value = await session.scalar(counters.advance(self.services.database.dialect, project.id, kind))
            await session.commit()
            return int(value)


def _pairs(members: Any) -> list[tuple[tables.User, int]]:
    return list(members or [])


@contextmanager
def create_services(database: Database, folder: Path, **settings: Any) -> Iterator[Services]:
    """The services of one process, with their files in `folder`; closes the repositories afterwards."""
    repositories = EditableRepositories(folder / "repositories", database)
    try:
        yield Services(
            database,
            repositories,
            Passwords(FAST_PASSWORD_HASHER),
            TokenCipher(load_key(folder, None)),
            UploadStore(folder / "uploads"),
            FolderStore(folder / "artifacts"),
            external_url=EXTERNAL_URL,
            **settings,
        )
    finally:
        repositories.close()


@asynccontextmanager
async def open_services(url: str, folder: Path, **settings: Any) -> AsyncIterator[Services]:
    """The services over the migrated database at `url`, which is closed afterwards."""
    database = Database(url)
    share_compiled_statements(database)
    try:
        with create_services(database, folder, **settings) as services:
            yield services
    finally:
        await database.close()


@pytest.fixture
async def services(database: Database, tmp_path: Path) -> AsyncIterator[Services]:
    # Rows that tests write into the tables notify no runner.
    with create_services(database, tmp_path, runner_queue=RunnerQueue(cache_seconds=0.0, poll_seconds=0.05)) as services:
        yield services


@pytest.fixture(scope="session")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the histories of a run are kept."""
    yield tmp_path_factory.mktemp("histories")
    DataFactory.imports.clear()


@pytest.fixture
def make(services: Services, histories: Path) -> DataFactory:
    return DataFactory(services, histories)

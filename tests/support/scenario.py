"""Data on which every operation can act, and valid calls of each, for tests over whole tables."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from graph.context import Context
from graph.fields.entities import global_id
from graph.rules.runners import runner_registration
from storage import tables
from storage.database.clock import now
from storage.git.tree_objects import ObjectKind
from storage.git.trees import ListingPage, TreeListing
from storage.secrets import digest_token
from storage.tables import AccessLevel, CheckStatus, UserState, Visibility
from tests.make import DataFactory, ssh_key
from tests.support.imports.import_items import IMPORT_MUTATIONS, valid_import_input
from tests.support.merge_requests import commit_text_files

LEVELS = {
    "GU": AccessLevel.GUEST,
    "RE": AccessLevel.REPORTER,
    "DE": AccessLevel.DEVELOPER,
    "MA": AccessLevel.MASTER,
    "OW": AccessLevel.OWNER,
}

HOOK_URL = "http://93.184.215.14/"
"""An address, since the name of a host is looked up when a hook is created. Nothing is sent there."""


@dataclass
class Scenario:
    """A private and a public project of one group, with a member of each level, and another user who wrote their contents."""

    make: DataFactory
    users: dict[str, tables.User | None]
    somebody: tables.User
    group: tables.Namespace
    public_group: tables.Namespace
    private: tables.Project
    public: tables.Project
    sha: str
    file_path: str
    blob: str
    """The path of a file of the commit `sha`, and its blob."""
    numbers: Any = field(default_factory=lambda: count(1))

    def project(self, role: str) -> tables.Project:
        return self.public if role == "PU" else self.private

    def group_of(self, role: str) -> tables.Namespace:
        return self.public_group if role == "PU" else self.group

    async def create_branch(self, project: tables.Project, name: str) -> None:
        """A new branch with a commit of its own."""
        await self.make.services.repositories.read(
            project.id, lambda repository: commit_text_files(repository, name, {f"{name}.txt": name})
        )

    async def set_password(self, role: str, password: str) -> None:
        """Gives a password to the user of a role, if there is one."""
        user, services = self.users.get(role), self.make.services
        if user is not None:
            hashed = await services.passwords.hash(password)
            async with services.database.write_session() as session:
                await session.execute(update(tables.User).where(col(tables.User.id) == user.id).values(password_hash=hashed))
                await session.commit()

    async def create_ci_file(self, project: tables.Project) -> None:
        """The branch `ci`, whose file has a job."""
        text = {".gitlab-ci.yml": "job:\n  script: make\n"}
        await self.make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, "ci", text))

    async def create_ref(self, project: tables.Project, folder: str) -> str:
        """The name of a new branch (`refs/heads/`) or tag (`refs/tags/`)."""
        name = f"ref{next(self.numbers)}"
        await self.make.services.repositories.read(project.id, lambda repository: repository.move_ref(f"{folder}{name}", self.sha, None))
        return name

    async def create_file(self, project: tables.Project) -> str:
        """The path of a new file in the branch `topic`."""
        path = f"file{next(self.numbers)}.txt"
        await self.make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, "topic", {path: "1"}))
        return path

    async def head_of(self, project: tables.Project, branch: str) -> str:
        """The head of a branch."""
        found = await self.make.services.repositories.read(project.id, lambda repository: repository.find_ref(f"refs/heads/{branch}"))
        assert found is not None
        return found

    async def create_target(self, name: str, role: str, call: str) -> Any:
        """A new object for this call, so that no call sees the effects of another."""
        make, project = self.make, self.project(role)
        match name:
            case "project":
                return project.id
            case "issue":
                return (await make.issue(project, author=self.somebody)).id
            case "merge request":
                number = next(self.numbers)
                await self.create_branch(project, f"proposal{number}")
                return (await make.merge_request(project, author=self.somebody, source_branch=f"proposal{number}")).id
            case "waiting merge request":
                waiting = {"merge_when_build_succeeds": True, "merge_user_id": self.somebody.id}
                branch = f"waiting{next(self.numbers)}"
                return (await make.merge_request(project, author=self.somebody, source_branch=branch, **waiting)).id
            case "build":
                build = await make.build(project, self.sha, status=CheckStatus.SUCCESS)
                await make.artifact(build)
                return build.id
            case "note":
                return await make.note(await make.issue(project, author=self.somebody))
            case "snippet":
                return await make.snippet(project, author=self.somebody)
            case "label":
                return await make.label(project)
            case "variable":
                return await make.variable(project)
            case "runner":
                # One that the masters of the project administer elsewhere, and that is to be assigned or taken away.
                other = await make.project(group=self.group_of(role), visibility=Visibility(project.visibility_level))
                return (await make.runner(other, *([] if call.startswith(("POST", "assign")) else [project]))).id
            case "trigger":
                return await make.trigger(project)
            case "milestone":
                return await make.milestone(project)
            case "doomed group":
                doomed = await make.group(members=[(self.users[key], level) for key, level in LEVELS.items()])
                await make.project(group=doomed, visibility=Visibility(project.visibility_level))
                return doomed
            case "doomed project":
                return await make.project(group=self.group_of(role), visibility=Visibility(project.visibility_level))
            case "member":
                member = tables.GroupMember(group_id=self.group_of(role).id, user_id=(await make.user()).id, access_level=10)
                await make.save(member)
                return member
            case "user":
                return (await make.user(state=UserState.BLOCKED if "unblock" in call else UserState.ACTIVE)).id
            case "key":
                number = next(self.numbers)
                key = tables.SshKey(user_id=self.somebody.id, title="k", key="ssh-rsa AAAA", fingerprint=f"{number}")
                await make.save(key)
                return key
            case "access token":
                number = next(self.numbers)
                token = tables.Token(user_id=self.somebody.id, name="t", digest=f"{number}", sealed="", created_at=now(), scopes="read")
                await make.save(token)
                return token
            case "email":
                email = tables.Email(user_id=self.somebody.id, email=f"more{next(self.numbers)}@example.org")
                await make.save(email)
                return email
            case "deploy key":
                number = next(self.numbers)
                deploy_key = tables.DeployKey(project_id=project.id, title="k", key="ssh-rsa AAAA", fingerprint=f"{number}")
                await make.save(deploy_key)
                return deploy_key
            case "project hook":
                hook = tables.Hook(url="http://127.0.0.1:9/", project_id=project.id)
                await make.save(hook)
                return hook
            case "hook":
                # An internal address, which is rejected before anything is sent.
                hook = tables.Hook(url="http://127.0.0.1:9/")
                await make.save(hook)
                return hook
        raise KeyError(name)


@pytest.fixture
async def scenario(make: DataFactory) -> Scenario:
    return await create_scenario(make)


async def create_scenario(make: DataFactory) -> Scenario:
    users: dict[str, tables.User | None] = {role: await make.user() for role in ("OU", "GU", "RE", "DE", "MA", "OW")}
    blocked = await make.user(state=UserState.BLOCKED)
    users |= {"AN": None, "AD": await make.admin(), "BL": blocked, "PU": users["OU"]}
    members = [(users[role], level) for role, level in LEVELS.items()] + [(blocked, AccessLevel.MASTER)]
    # A second owner, so that the first is not the last one.
    somebody = await make.user()
    group = await make.group(members=[*members, (somebody, AccessLevel.OWNER)])
    public_group = await make.group(members=members)
    private = await make.project(group=group, history={"commits": 4})
    public = await make.project(group=public_group, visibility=Visibility.PUBLIC, history={"commits": 4})
    sha = await make.services.repositories.read(private.id, lambda repository: repository.resolve("master"))
    assert sha is not None
    listed = await make.services.repositories.read(
        private.id, lambda repository: TreeListing(repository, sha, recursive=True).page(ListingPage(100))
    )
    file = next(entry for entry in listed if entry.kind is ObjectKind.BLOB)
    return Scenario(make, users, somebody, group, public_group, private, public, sha, file.path, file.oid)


async def valid_v3_request(world: Scenario, call: str, role: str) -> tuple[str, str, dict[str, Any]]:
    """The method, the path, and the parameters of a valid call."""
    method, path = call.split(" ")
    number = next(world.numbers)
    parameters: dict[str, Any] = {}
    keys: dict[str, Any] = {"sha": world.sha}
    if path.startswith(("/projects/:id", "/projects/fork/")):
        owns = call in ("PUT /projects/:id", "DELETE /projects/:id", "POST /projects/fork/:id") or path.startswith("/projects/:id/fork")
        keys["id"] = (await world.create_target("doomed project", role, call)).id if owns else world.project(role).id
        if ":forked_from_id" in path:
            keys["forked_from_id"] = (await world.create_target("doomed project", role, call)).id
        if ":note_id" in path:
            kind = next(kind for kind in ("snippet", "merge request", "issue") if f":{kind.replace(' ', '_')}_id" in path)
            if kind == "issue":
                note = await world.create_target("note", role, call)
            elif kind == "snippet":
                note = await world.make.note(await world.create_target("snippet", role, call))
            else:
                parent = await world.make.fetch(tables.MergeRequest, await world.create_target("merge request", role, call))
                note = await world.make.note(parent, author=world.somebody)
            keys |= {
                "issue_id": note.issue_id,
                "snippet_id": note.snippet_id,
                "merge_request_id": note.merge_request_id,
                "note_id": note.id,
            }
        elif ":snippet_id" in path:
            keys["snippet_id"] = (await world.create_target("snippet", role, call)).id
        elif ":merge_request_id" in path:
            name = "waiting merge request" if "cancel_" in path else "merge request"
            keys["merge_request_id"] = await world.create_target(name, role, call)
        elif ":issue_id" in path:
            keys["issue_id"] = await world.create_target("issue", role, call)
        elif "/trigger" in path and method + path[-9:] != "POST/triggers":
            keys["token"] = await world.create_target("trigger", role, call)
        elif "/runners" in path and method != "GET":
            keys["runner_id"] = await world.create_target("runner", role, call)
        elif path.endswith("/:key"):
            keys["key"] = (await world.create_target("variable", role, call)).key
        elif ":build_id" in path:
            keys["build_id"] = await world.create_target("build", role, call)
        elif ":milestone_id" in path:
            keys["milestone_id"] = (await world.create_target("milestone", role, call)).id
        if ":branch" in path:
            keys["branch"] = await world.create_ref(world.project(role), "refs/heads/")
        elif ":tag_name" in path:
            keys["tag_name"] = await world.create_ref(world.project(role), "refs/tags/")
            if call.startswith("PUT"):
                await world.make.save(tables.Release(project_id=keys["id"], tag=keys["tag_name"], description="D"))
        parameters = {"title": f"T{number}", "body": "B", "note": "N", "color": "#FF0000", "name": f"new{number}"}
        if "/snippets" in path:
            parameters |= {"file_name": "a.rb", "code": "C", "visibility_level": 0}
        if path.endswith("/trigger/builds"):
            await world.create_ci_file(world.project(role))
            parameters = {"token": keys["token"], "ref": "ci", "variables": {"K": "V"}}
        if path.endswith("/runners") and method == "POST":
            parameters = {"runner_id": keys["runner_id"]}
        if "/variables" in path:
            parameters = {"key": f"NEW_{number}", "value": "V"}
        if path.endswith("/raw_blobs/:sha"):
            keys["sha"] = world.blob
        if path.endswith("/files"):
            file_path = f"new{number}.txt" if method == "POST" else await world.create_file(world.project(role))
            parameters = {"file_path": file_path, "ref": "topic", "branch_name": "topic", "commit_message": "M", "content": "C"}
            keep = {"GET": ("file_path", "ref"), "DELETE": ("file_path", "branch_name", "commit_message")}.get(method, parameters)
            parameters = {key: value for key, value in parameters.items() if key in keep}
        elif method == "GET" and "/repository/" in path:
            parameters = {"filepath": world.file_path, "from": "v1", "to": "master"}
        elif "/repository/" in path and method in ("POST", "PUT"):
            parameters |= {"branch_name": f"new{number}", "ref": "master", "description": "D"}
            parameters |= {} if "tag_name" in keys else {"tag_name": f"new{number}"}
        if call == "PUT /projects/:id":
            parameters = {"description": "new"}
        if path.endswith("/merge_requests") and method == "POST":
            await world.create_branch(world.project(role), f"new{number}")
            parameters |= {"source_branch": f"new{number}", "target_branch": "master"}
        if "/statuses/" in path:
            parameters = {"state": "success", "name": f"new{number}"}
        if "/keys" in path:
            keys["key_id"] = (await world.create_target("deploy key", role, call)).id
            parameters = {"title": "k", "key": ssh_key(number)}
        if "/hooks" in path:
            keys["hook_id"] = (await world.create_target("project hook", role, call)).id
            parameters = {"url": HOOK_URL}
        if "/members" in path:
            member = await world.make.user()
            keys["user_id"] = member.id
            parameters = {"user_id": member.id, "access_level": 20}
            if method != "POST":
                await world.make.member(world.project(role), member, AccessLevel.GUEST)
        if path.endswith("/labels") and method in ("PUT", "DELETE"):
            parameters["name"] = (await world.create_target("label", role, call)).title
    elif path.startswith("/runners"):
        keys["id"] = (await world.make.runner(world.project(role))).id
        parameters = {"description": f"R{number}"} if method == "PUT" else {}
    elif path == "/projects/user/:user_id":
        keys["user_id"] = world.somebody.id
        parameters = {"name": f"new{number}"}
    elif path == "/projects/search/:query":
        keys["query"] = "o"
    elif path in ("/projects", "/namespaces") or path.startswith(("/projects/owned", "/projects/starred", "/projects/all")):
        parameters = {"name": f"new{number}"}
    elif path.startswith("/groups"):
        group = await world.create_target("doomed group", role, call) if call == "DELETE /groups/:id" else world.group_of(role)
        keys["id"] = group.id
        parameters = {"name": f"G{number}", "path": f"g{number}"} if call == "POST /groups" else {}
        if "members" in path and method != "GET":
            keys["user_id"] = (
                (await world.make.user()).id if method == "POST" else (await world.create_target("member", role, call)).user_id
            )
            parameters = {"user_id": keys["user_id"], "access_level": 20}
        elif ":project_id" in path:
            keys["id"] = (await world.make.group(owner=world.users["OW"])).id
            keys["project_id"] = (await world.create_target("doomed project", role, call)).id
    elif path == "/application/settings":
        parameters = {"sign_in_text": "Hello"}
    elif path.startswith("/hooks"):
        keys["id"] = (await world.create_target("hook", role, call)).id
        parameters = {"url": HOOK_URL}
    elif "/keys" in path or "/emails" in path:
        noun = "key" if "/keys" in path else "email"
        thing = await world.create_target(noun, role, call)
        mine = path.startswith("/user/")
        mine |= path == "/keys/:id"
        last = ":id" if path.endswith("/:id") else ""
        keys = {"uid": world.somebody.id, "id": thing.id if mine or last else world.somebody.id}
        parameters = {"title": "k", "key": ssh_key(number), "email": f"new{number}@example.org"}
    else:
        person = await world.create_target("user", role, call) if ":" in path else 0
        keys = {"id": person, "uid": person}
        parameters = {"email": f"x{number}@example.org", "username": f"x{number}", "name": "X", "password": "12345678"}
    filled = re.sub(r":(\w+)", lambda match: str(keys[match[1]]), path)
    return method, filled, parameters


async def registration_token(make: DataFactory, project_id: int) -> str:
    """A registration token of the project."""
    async with make.services.database.read_session() as session:
        return await runner_registration.get_token(Context(make.services, session, None, "test"), project_id)


async def valid_mutation_input(world: Scenario, name: str, role: str) -> dict[str, Any]:
    """The input of a valid call of a mutation."""
    number = next(world.numbers)
    make, project, group = world.make, world.project(role), world.group_of(role)
    path, group_path = str(project.id), str(group.id)
    if name in IMPORT_MUTATIONS:
        return await valid_import_input(world, name, role)

    async def create_user_id() -> int:
        """The id of a new user, for the calls that act on one."""
        return (await make.user(state=UserState.BLOCKED if name == "unblockUser" else UserState.ACTIVE)).id

    match name:
        case "createUser":
            return {"email": f"x{number}@example.org", "username": f"x{number}", "name": "X", "password": "12345678"}
        case "updateUser":
            return {"databaseId": await create_user_id(), "name": "New"}
        case "deleteUser" | "blockUser" | "unblockUser" | "resetPrivateToken":
            return {"databaseId": await create_user_id()}
        case "updateProfile":
            return {"bio": f"B{number}"}
        case "changePassword":
            await world.set_password(role, "12345678")
            return {"currentPassword": "12345678", "password": "87654321"}
        case "createAccessToken":
            return {"name": f"x{number}", "scopes": ["READ"]}
        case "revokeAccessToken":
            token = await world.create_target("access token", role, name)
            return {"userId": world.somebody.id, "databaseId": token.id}
        case "addSshKey":
            return {"userId": await create_user_id(), "title": "k", "key": ssh_key(number)}
        case "addEmail":
            return {"userId": await create_user_id(), "email": f"more{number}@example.org"}
        case "deleteSshKey" | "deleteEmail":
            thing = await world.create_target("key" if name == "deleteSshKey" else "email", role, name)
            return {"userId": world.somebody.id, "databaseId": thing.id}
        case "createHook":
            return {"url": HOOK_URL}
        case "updateHook" | "testHook" | "deleteHook":
            return {"databaseId": (await world.create_target("hook", role, name)).id}
        case "addDeployKey":
            return {"projectPath": path, "title": "k", "key": ssh_key(number)}
        case "deleteDeployKey":
            return {"projectPath": path, "databaseId": (await world.create_target("deploy key", role, name)).id}
        case "createProjectHook":
            return {"projectPath": path, "url": HOOK_URL}
        case "updateProjectHook" | "testProjectHook" | "deleteProjectHook":
            return {"projectPath": path, "databaseId": (await world.create_target("project hook", role, name)).id}
        case "redeliverHook":
            hook = await world.create_target("hook", role, name)
            event = tables.Event(name="project_create", payload={}, created_at=now())
            await make.save(event)
            delivery = tables.Delivery(
                event_id=event.id, hook_id=hook.id, webhook_id=f"{number}", event_name="project_create", created_at=now()
            )
            await make.save(delivery)
            return {"databaseId": delivery.id}
        case "createGroup":
            return {"name": f"G{number}", "path": f"g{number}"}
        case "updateGroup":
            return {"groupPath": group_path, "description": "new"}
        case "deleteGroup":
            return {"groupPath": str((await world.create_target("doomed group", role, name)).id)}
        case "addGroupMember":
            return {"groupPath": group_path, "userId": await create_user_id(), "accessLevel": "GUEST"}
        case "updateGroupMember" | "removeGroupMember":
            member = (await world.create_target("member", role, name)).user_id
            return {"groupPath": group_path, "userId": member} | ({"accessLevel": "REPORTER"} if name.startswith("update") else {})
        case "createProject":
            return {"groupPath": group_path, "name": f"P{number}"}
        case "forkProject":
            return {"projectPath": path, "path": f"fork{number}"}
        case "updateProject":
            return {"projectPath": path, "description": "new"}
        case "linkFork":
            return {"projectPath": path, "sourcePath": str((await world.create_target("doomed project", role, name)).id)}
        case "archiveProject" | "unarchiveProject" | "unlinkFork":
            return {"projectPath": str((await world.create_target("doomed project", role, name)).id)}
        case "starProject" | "unstarProject":
            return {"projectPath": path}
        case "deleteProject" | "transferProject":
            doomed_project = await world.create_target("doomed project", role, name)
            elsewhere = {"groupPath": str((await make.group(owner=world.users["OW"])).id)} if name == "transferProject" else {}
            return {"projectPath": str(doomed_project.id), **elsewhere}
        case "addProjectMember":
            return {"projectPath": path, "userId": await create_user_id(), "accessLevel": "GUEST"}
        case "updateProjectMember" | "removeProjectMember":
            member = await make.user()
            await make.member(project, member, AccessLevel.GUEST)
            return {"projectPath": path, "userId": member.id} | ({"accessLevel": "REPORTER"} if name.startswith("update") else {})
        case "createIssue":
            return {"projectPath": path, "title": "T"}
        case "updateIssue" | "closeIssue" | "reopenIssue":
            return {"projectPath": path, "databaseId": await world.create_target("issue", role, name)}
        case "createMergeRequest":
            await world.create_branch(project, f"new{number}")
            return {"projectPath": path, "sourceBranch": f"new{number}", "targetBranch": "master", "title": "T"}
        case "updateMergeRequest" | "acceptMergeRequest":
            return {"projectPath": path, "databaseId": await world.create_target("merge request", role, name)}
        case "cancelMergeWhenBuildSucceeds":
            return {"projectPath": path, "databaseId": await world.create_target("waiting merge request", role, name)}
        case "markFileViewed":
            seen = await make.merge_request(project, head_oid=world.sha)
            return {"projectPath": path, "databaseId": seen.id, "path": world.file_path, "headOid": world.sha, "viewed": True}
        case "markMergeRequestVisited":
            seen = await make.merge_request(project, head_oid=world.sha)
            return {"projectPath": path, "databaseId": seen.id, "headOid": world.sha}
        case "createThread":
            line = {"headOid": world.sha, "path": world.file_path, "oldPath": world.file_path, "oldLine": None, "newLine": 1}
            discussed = await make.merge_request(project, author=world.somebody, head_oid=world.sha)
            return {"projectPath": path, "databaseId": discussed.id, "body": "B", "position": line}
        case "replyToThread" | "resolveThread" | "unresolveThread":
            discussed = await make.merge_request(project, author=world.somebody)
            thread = await make.thread(discussed, resolved_at=now() if name == "unresolveThread" else None)
            return {"id": global_id("ReviewThread", thread.id)} | ({"body": "B"} if name == "replyToThread" else {})
        case "applySuggestion":
            suggested_path = await world.create_file(project)
            head = await world.head_of(project, "topic")
            discussed = await make.merge_request(
                project, author=world.somebody, source_branch="topic", target_branch=f"t{number}", head_oid=head
            )
            line = {
                "head_oid": head,
                "old_path": suggested_path,
                "new_path": suggested_path,
                "new_line": 1,
                "excerpt": "@@ -0,0 +1,1 @@\n+1\n",
            }
            thread = await make.thread(discussed, **line)
            note = await make.note(discussed, thread_id=thread.id, body="```suggestion\n2\n```")
            return {"id": global_id("Note", note.id), "index": 0, "message": "M"}
        case "createLabel":
            return {"projectPath": path, "name": f"new{number}", "color": "#FF0000"}
        case "updateLabel" | "deleteLabel":
            of_label = {"projectPath": path, "name": (await world.create_target("label", role, name)).title}
            return {**of_label, "color": "#FF0000"} if name == "updateLabel" else of_label
        case "createMilestone":
            return {"projectPath": path, "title": f"T{number}"}
        case "updateMilestone" | "deleteMilestone":
            of_milestone = {"projectPath": path, "databaseId": (await world.create_target("milestone", role, name)).id}
            return {**of_milestone, "stateEvent": "CLOSE"} if name == "updateMilestone" else of_milestone
        case "createNote":
            return {"projectPath": path, "issueDatabaseId": await world.create_target("issue", role, name), "body": "B"}
        case "updateNote":
            return {"projectPath": path, "databaseId": (await world.create_target("note", role, name)).id, "body": "B"}
        case "createSnippet":
            return {"projectPath": path, "title": "T", "fileName": "a.rb", "content": "C"}
        case "updateSnippet" | "deleteSnippet":
            return {"projectPath": path, "databaseId": (await world.create_target("snippet", role, name)).id}
        case "createUpload":
            incoming = make.services.uploads.receive()
            await incoming.finish()
            return {"projectPath": path, "file": {"ticket": incoming.ticket, "name": "a.txt"}}
        case "createCommitComment":
            return {"projectPath": path, "rev": "master", "note": "N"}
        case "createBuild":
            return {"projectPath": path, "sha": "master", "name": f"new{number}"}
        case "appendBuildTrace":
            return {"projectPath": path, "databaseId": await world.create_target("build", role, name), "text": "x", "offset": 0}
        case "createArtifactUpload":
            return {"projectPath": path, "databaseId": await world.create_target("build", role, name), "filename": "a.zip"}
        case "updateBuild" | "cancelBuild" | "retryBuild" | "eraseBuild" | "keepArtifacts":
            return {"projectPath": path, "databaseId": await world.create_target("build", role, name)}
        case "stopEnvironment":
            return {"projectPath": path, "databaseId": (await make.environment(project)).id}
        case "playBuild":
            return {"projectPath": path, "databaseId": (await make.build(project, world.sha, status=tables.CheckStatus.MANUAL)).id}
        case "createCommitStatus":
            return {"projectPath": path, "sha": "master", "state": "SUCCESS"}
        case "updateSettings":
            return {"signInText": "Hello"}
        case "createRunner":
            return {"projectPath": path, "description": "R"}
        case "updateRunner" | "deleteRunner":
            return {"databaseId": (await make.runner(project)).id}
        case "assignRunner" | "unassignRunner":
            return {"projectPath": path, "runnerId": await world.create_target("runner", role, name)}
        case "createTrigger":
            return {"projectPath": path}
        case "deleteTrigger":
            return {"projectPath": path, "token": await make.trigger(project)}
        case "triggerBuilds":
            await world.create_ci_file(project)
            return {"projectPath": path, "token": await make.trigger(project), "ref": "ci"}
        case "createVariable":
            return {"projectPath": path, "key": f"NEW_{number}", "value": "V"}
        case "updateVariable" | "deleteVariable":
            return {"projectPath": path, "key": (await make.variable(project)).key}
        case "claimBuild":
            return {"name": "R"}
        case "registerRunner":
            return {"registrationToken": await registration_token(make, project.id), "description": f"runner{number}"}
        case "unregisterRunner":
            return {"token": make.runner_token(await make.runner())}
        case "deleteArtifact":
            build = await make.build(project, world.sha, status=tables.CheckStatus.SUCCESS)
            await make.artifact(build)
            return {"projectPath": path, "databaseId": build.id}
        case "resetRunnersToken":
            return {"projectPath": path}
        case "signUp":
            return {"email": f"x{number}@example.org", "username": f"x{number}", "name": "X", "password": "12345678"}
        case "importMergeRequests":
            return {"projectPath": path}
        case "createBranch":
            return {"projectPath": path, "name": f"b{number}", "ref": "master"}
        case "deleteBranch":
            return {"projectPath": path, "name": await world.create_ref(project, "refs/heads/")}
        case "createCommit":
            actions = [{"action": "CREATE", "path": f"new{number}.txt", "content": "C"}]
            return {"projectPath": path, "branch": "topic", "message": "M", "actions": actions}
        case "createTag":
            return {"projectPath": path, "name": f"t{number}", "ref": "master"}
        case "deleteTag":
            return {"projectPath": path, "name": await world.create_ref(project, "refs/tags/")}
        case "createRelease" | "updateRelease":
            tag = await world.create_ref(project, "refs/tags/")
            if name == "updateRelease":
                await make.save(tables.Release(project_id=project.id, tag=tag, description="D"))
            return {"projectPath": path, "tagName": tag, "description": "D"}
        case "protectBranch" | "unprotectBranch":
            return {"projectPath": path, "name": "topic"}
        case "signIn":
            hashed = await make.services.passwords.hash("12345678")
            await make.user(f"signer{number}", password_hash=hashed)
            return {"login": f"signer{number}", "password": "12345678"}
        case "createSignInLink":
            return {"databaseId": await create_user_id()}
        case "signInByLink":
            moment = now()
            link = {"digest": digest_token(f"code{number}"), "created_at": moment, "expires_at": moment + timedelta(days=1)}
            await make.save(tables.SignInLink(user_id=await create_user_id(), **link))
            return {"code": f"code{number}"}
        case "finishOpenIdSignIn":
            return {"ticket": "t", "state": "s", "code": "c"}
    raise KeyError(name)

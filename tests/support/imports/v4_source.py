"""A server of API v4 whose answers have the shape of the examples in its documentation, and a repository over HTTP."""

import subprocess
from pathlib import Path
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from tests.make import ssh_key

TOKEN = "v4-token"
SSH_KEY, DEPLOY_KEY = ssh_key(1), ssh_key(2)
USER = {"id": 1, "username": "john_smith", "name": "John Smith", "state": "active", "avatar_url": "http://old.example/a.png"}
USER |= {"web_url": "http://old.example/john_smith"}
FULL_USER = USER | {
    "email": "john@example.com", "created_at": "2012-05-23T08:00:58Z", "is_admin": True, "bio": "", "location": None,
    "skype": "john", "linkedin": "", "twitter": "", "website_url": "", "organization": "", "last_sign_in_at": "2012-06-01T11:41:01Z",
    "confirmed_at": "2012-05-23T09:05:22Z", "theme_id": 1, "last_activity_on": "2012-05-23", "color_scheme_id": 2,
    "projects_limit": 100, "current_sign_in_at": "2012-06-02T06:36:55Z", "identities": [{"provider": "ldap", "extern_uid": "cn=john"}],
    "can_create_group": True, "can_create_project": True, "two_factor_enabled": False, "external": False, "namespace_id": 1,
}  # fmt: skip
GUEST = {"id": 2, "username": "guest", "name": "Guest", "state": "active", "email": "guest@example.com", "external": True}
GUEST |= {"created_at": "2013-05-23T08:00:58Z", "confirmed_at": "2013-05-23T09:05:22Z"}
NAMESPACE = {"id": 4, "name": "Diaspora", "path": "diaspora", "kind": "group", "full_path": "diaspora", "parent_id": None}
PROJECT = {
    "id": 3, "description": "A client", "default_branch": "master", "visibility": "internal",
    "ssh_url_to_repo": "git@old.example:diaspora/client.git", "http_url_to_repo": "http://old.example/diaspora/client.git",
    "web_url": "http://old.example/diaspora/client", "tag_list": ["example"], "topics": ["example"], "name": "Client",
    "name_with_namespace": "Diaspora / Client", "path": "client", "path_with_namespace": "diaspora/client", "issues_enabled": True,
    "merge_requests_enabled": True, "jobs_enabled": True, "wiki_enabled": True, "snippets_enabled": True,
    "created_at": "2013-09-30T13:46:02Z", "last_activity_at": "2013-09-30T13:46:02Z", "creator_id": 1, "namespace": NAMESPACE,
    "archived": False, "avatar_url": None, "shared_runners_enabled": True, "forks_count": 0, "star_count": 0,
    "runners_token": "b8bc4a7a29eb76ea83cf79e4908c2b", "public_jobs": True,
}  # fmt: skip
PRIVATE_ISSUES = PROJECT | {
    "id": 9, "name": "Tracker", "path": "tracker", "path_with_namespace": "diaspora/tracker", "visibility": "public",
    "issues_access_level": "private", "repository_access_level": "enabled", "runners_token": None,
}  # fmt: skip
MILESTONE = {
    "id": 12, "iid": 3, "project_id": 3, "title": "10.0", "description": "Version", "due_date": "2013-11-29", "start_date": "2013-11-10",
    "state": "active", "updated_at": "2013-10-02T09:24:18Z", "created_at": "2013-10-02T09:24:18Z", "expired": False,
}  # fmt: skip
ISSUE = {
    "id": 41, "iid": 1, "project_id": 3, "title": "Ut commodi", "description": "Ratione dolores.", "state": "closed",
    "created_at": "2016-01-04T15:31:46.176Z", "updated_at": "2016-01-04T15:31:46.176Z", "closed_at": "2016-01-05T15:31:46.176Z",
    "closed_by": USER, "labels": ["foo"], "milestone": MILESTONE, "assignees": [USER], "assignee": USER, "author": USER, "upvotes": 4,
    "downvotes": 0, "user_notes_count": 1, "confidential": False, "web_url": "http://old.example/diaspora/client/issues/1",
}  # fmt: skip
MERGE_REQUEST = {
    "id": 8, "iid": 1, "project_id": 3, "title": "test1", "description": "fixed", "state": "opened", "merge_user": None,
    "created_at": "2017-04-29T08:46:00Z", "updated_at": "2017-04-29T08:46:00Z", "target_branch": "master", "source_branch": "topic",
    "author": USER, "assignee": None, "source_project_id": 3, "target_project_id": 3, "labels": [], "draft": False,
    "work_in_progress": False, "milestone": None, "merge_when_pipeline_succeeds": False, "merge_status": "can_be_merged",
    "merged_at": None, "closed_at": None, "merge_commit_sha": None, "user_notes_count": 0,
}  # fmt: skip
NOTE = {
    "id": 302, "body": "closed", "attachment": None, "author": USER, "created_at": "2013-10-02T09:22:45Z",
    "updated_at": "2013-10-02T10:22:45Z", "system": True, "noteable_id": 41, "noteable_type": "Issue", "noteable_iid": 1,
    "resolvable": False,
}  # fmt: skip


class V4Server:
    """An ASGI application. `answers` by path below /api/v4; every path that is not there is 404. `paths` are those that were read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.oid = self._create_repository()
        self.paths: list[str] = []
        job = {
            "id": 7, "status": "success", "stage": "test", "name": "rspec", "ref": "master", "tag": False, "coverage": 98.5,
            "allow_failure": False, "created_at": "2015-12-24T15:51:21.802Z", "started_at": "2015-12-24T17:54:27.722Z",
            "finished_at": "2015-12-24T17:54:27.895Z", "duration": 0.173, "user": USER, "commit": {"id": self.oid, "short_id": "x"},
            "pipeline": {"id": 6, "ref": "master", "sha": self.oid, "status": "success"}, "web_url": "http://old.example/jobs/7",
            "artifacts": [], "runner": None, "artifacts_file": {"filename": "artifacts.zip", "size": 5},
        }  # fmt: skip
        manual = {**job, "id": 8, "status": "manual", "artifacts_file": None}
        created = {**manual, "id": 9, "status": "created", "started_at": None, "finished_at": None, "duration": None}
        project = "/projects/3"
        self.answers: dict[str, Any] = {
            "/user": FULL_USER, "/version": {"version": "13.2.1", "revision": "4e963fe"}, "/users": [FULL_USER, GUEST],
            "/users/2": GUEST, "/users/1": FULL_USER,
            "/users/1/keys": [{"id": 1, "title": "Public key", "key": SSH_KEY, "created_at": "2014-08-01T14:47:39.080Z"}],
            "/users/1/emails": [{"id": 1, "email": "john@example.com"}, {"id": 3, "email": "john2@example.com"}],
            "/application/settings": {
                "default_projects_limit": 77, "signup_enabled": False, "password_authentication_enabled_for_web": True,
                "gravatar_enabled": True, "default_branch_protection": 2, "default_project_visibility": "internal",
                "default_snippet_visibility": "private", "restricted_visibility_levels": ["public"],
            },
            "/namespaces": [{"id": 1, "name": "john", "path": "john_smith", "kind": "user", "full_path": "john_smith"}, NAMESPACE],
            "/groups": [NAMESPACE | {"description": "A group", "visibility": "public"},
                        {"id": 5, "name": "Inner", "path": "inner", "full_path": "diaspora/inner", "description": ""}],
            "/groups/4/members": [USER | {"access_level": 50, "expires_at": None},
                                  GUEST | {"access_level": 20, "expires_at": "2030-01-31"}],
            "/groups/5/members": [],
            "/projects": [PROJECT, PRIVATE_ISSUES], project: PROJECT, "/projects/9": PRIVATE_ISSUES,
            f"{project}/members": [USER | {"access_level": 5}], "/hooks": [], "/runners/all": [],
            "/projects/3/pipelines": [{"id": 6, "status": "success", "ref": "master"}, {"id": 5, "status": "skipped", "ref": "master"}],
            f"{project}/labels": [{"id": 1, "name": "foo", "color": "#d9534f", "description": "Bug", "open_issues_count": 1}],
            f"{project}/milestones": [MILESTONE],
            f"{project}/issues": [ISSUE, {**ISSUE, "id": 42, "iid": 2, "title": "Hidden", "confidential": True}],
            f"{project}/merge_requests": [MERGE_REQUEST],
            f"{project}/issues/1/notes": [NOTE, {**NOTE, "id": 303, "system": False, "internal": True, "body": "for members"}],
            f"{project}/issues/2/notes": [{**NOTE, "id": 304, "body": "secret"}],
            f"{project}/merge_requests/1/notes": [],
            f"{project}/snippets": [
                {"id": 1, "title": "test", "file_name": "add.rb", "visibility": "public", "author": USER,
                 "created_at": "2012-06-28T10:52:04Z", "updated_at": "2012-06-28T10:52:04Z"}
            ],
            f"{project}/snippets/1/raw": b"puts 1\n", f"{project}/snippets/1/notes": [],
            f"{project}/hooks": [
                {"id": 1, "url": "http://example.com/hook", "project_id": 3, "push_events": True, "job_events": True,
                 "issues_events": True, "enable_ssl_verification": True, "created_at": "2012-10-12T17:04:47Z"}
            ],
            f"{project}/deploy_keys": [{"id": 9, "title": "Key", "key": DEPLOY_KEY, "created_at": "2013-10-02T10:12:29Z"}],
            f"{project}/variables": [
                {"key": "NEW", "value": "new value", "protected": False, "variable_type": "env_var", "environment_scope": "*"},
                {"key": "SECRET", "value": "x", "protected": True, "variable_type": "env_var"},
                {"key": "NEW", "value": "other", "protected": False, "environment_scope": "production"},
                {"key": "FILE", "value": "content", "protected": False, "variable_type": "file"},
            ],
            f"{project}/triggers": [
                {"id": 10, "description": "mine", "created_at": "2016-01-07T09:53:58.235Z", "last_used": None, "token": "6d056f63e50f"},
            ],
            f"{project}/protected_branches": [
                {"id": 1, "name": "master", "push_access_levels": [{"id": 1, "access_level": 30, "access_level_description": "D"}],
                 "merge_access_levels": [{"access_level": 40}]}
            ],
            f"{project}/repository/tags": [
                {"name": "v1.0.0", "message": None, "target": self.oid, "commit": {"id": self.oid},
                 "release": {"tag_name": "v1.0.0", "description": "Amazing release. Wow"}}
            ],
            f"{project}/jobs": [created, manual, job], f"{project}/jobs/7/trace": b"output\n", f"{project}/jobs/7/artifacts": b"bytes",
            f"{project}/repository/commits/{self.oid}/statuses": [
                {"id": 91, "sha": self.oid, "ref": "master", "status": "success", "name": "bundler:audit", "target_url": "http://ci/91",
                 "description": None, "created_at": "2016-01-19T08:40:25.934Z", "started_at": None, "finished_at": None,
                 "allow_failure": True, "author": USER}
            ],
            f"{project}/repository/commits/{self.oid}/comments": [
                {"note": "this code is really nice", "author": USER, "path": None, "line": None, "line_type": None,
                 "created_at": "2016-01-19T09:44:55.600Z"}
            ],
        }  # fmt: skip

    def _create_repository(self) -> str:
        """A bare repository with the branches master and topic and a tag, for git's HTTP protocol without a program on the server."""

        def git(*arguments: str, input: str = "") -> str:
            command = ["git", "--git-dir", str(self.folder), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
            return subprocess.run(command, input=input, capture_output=True, text=True, check=True).stdout.strip()

        subprocess.run(["git", "init", "-q", "--bare", "-b", "master", str(self.folder)], check=True)
        attributes = git("hash-object", "-w", "--stdin", input="*.psd filter=lfs diff=lfs merge=lfs -text\n")
        tree = git("mktree", input=f"100644 blob {attributes}\t.gitattributes\n")
        oid = git("commit-tree", tree, "-m", "First")
        topic = git("commit-tree", tree, "-p", oid, "-m", "Second")
        for ref, target in (("heads/master", oid), ("heads/topic", topic), ("tags/v1.0.0", oid)):
            git("update-ref", f"refs/{ref}", target)
        git("update-server-info")
        return oid

    def _find_answer(self, path: str) -> Any:
        """Commits, the second project and the second user have nothing but what `answers` names."""
        is_empty = any(part in path for part in ("/repository/commits/", "/projects/9/", "/users/2/"))
        return self.answers.get(path, [] if is_empty else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        headers = dict(scope["headers"])
        status, body, kind = 404, b'{"message":"404 Not Found"}', b"application/json"
        if path.startswith("/api/v3"):
            status, body = 410, b'{"error":"API V3 is no longer supported. Use API V4 instead."}'
        elif path.startswith(("/diaspora/client.git/", "/diaspora/client.wiki.git/")):
            # The pages of the wiki have the same commits.
            file = self.folder / path.partition(".git/")[2]
            if b"authorization" not in headers:
                status = 401
            elif file.is_file():
                status, body, kind = 200, file.read_bytes(), b"application/octet-stream"
        elif headers.get(b"private-token") != TOKEN.encode():
            status, body = 401, b'{"message":"401 Unauthorized"}'
        elif (answer := self._find_answer(path.removeprefix("/api/v4"))) is not None:
            self.paths.append(f"{path}?{scope['query_string'].decode()}")
            status, body = 200, answer if isinstance(answer, bytes) else orjson.dumps(answer)
        sent = [(b"content-type", kind)]
        if status == 200 and isinstance(self._find_answer(path.removeprefix("/api/v4")), list):
            sent += [(b"x-total", str(len(orjson.loads(body))).encode()), (b"x-next-page", b"")]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})

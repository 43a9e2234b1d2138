"""The usual script of a legacy client: legacy_script.py URL TOKEN SSH_KEY, with python-gitlab 0.12 or 1.2.

Creates a project, fills it by the interface, merges, adds what a project has besides, downloads the archive, and removes it.
"""

import io
import sys
import tarfile
from typing import Any

import gitlab

IS_OLD = gitlab.__version__.startswith("0.12.")


def connect(url: str, token: str) -> Any:
    forge = gitlab.Gitlab(url, token) if IS_OLD else gitlab.Gitlab(url, private_token=token, api_version="3")
    forge.auth()
    return forge


def commit(project: Any, branch: str, path: str) -> None:
    project.files.create({"file_path": path, "branch_name": branch, "content": f"{path}\n", "commit_message": f"Add {path}"})


def propose(project: Any) -> Any:
    """Creates a merge request. The interface document answers with the status 200, which the library takes for a failure."""
    try:
        project.mergerequests.create({"source_branch": "topic", "target_branch": "master", "title": "Add news"})
    except gitlab.GitlabCreateError as error:
        assert error.response_code == 200, error
    (request,) = project.mergerequests.list()
    return request


def merge(forge: Any, project: Any, request: Any) -> str:
    if IS_OLD:
        response = forge._raw_put(f"/projects/{project.id}/merge_request/{request.id}/merge")
        response.raise_for_status()
        return str(response.json()["state"])
    request.merge()
    return str(request.state)


def work(forge: Any, ssh_key: str) -> None:
    before = {project.id for project in forge.projects.list()}
    project = forge.projects.create({"name": "Scripted", "description": "made by a script"})
    assert {each.id for each in forge.projects.list()} == {*before, project.id}

    commit(project, "master", "README.md")
    project.branches.create({"branch_name": "topic", "ref": "master"})
    commit(project, "topic", "NEWS.md")
    project.tags.create({"tag_name": "v1.0", "ref": "master"})
    assert [tag.name for tag in project.tags.list()] == ["v1.0"]
    assert merge(forge, project, propose(project)) == "merged"

    hook = project.hooks.create({"url": "http://hooks.example/"})
    assert [each.id for each in project.hooks.list()] == [hook.id]
    project.variables.create({"key": "SECRET", "value": "s3cret"})
    assert [(each.key, each.value) for each in project.variables.list()] == [("SECRET", "s3cret")]
    trigger = project.triggers.create({})
    assert [each.token for each in project.triggers.list()] == [trigger.token]
    key = project.keys.create({"title": "deploy", "key": ssh_key})
    assert [each.id for each in project.keys.list()] == [key.id]

    archive = project.archive() if IS_OLD else project.repository_archive()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert sorted(name.partition("/")[2] for name in files.getnames() if name.endswith(".md")) == ["NEWS.md", "README.md"]

    project.delete()
    assert {each.id for each in forge.projects.list()} == before


if __name__ == "__main__":
    work(connect(sys.argv[1], sys.argv[2]), sys.argv[3])
    print(f"done with python-gitlab {gitlab.__version__}")

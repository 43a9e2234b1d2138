"""Valid calls of the mutations of imports of instances, for tests over whole tables."""

from typing import TYPE_CHECKING, Any

from storage import tables
from storage.database.clock import now
from storage.tables import ImportKind, InstanceImportState
from tests.make import ssh_key

if TYPE_CHECKING:
    from tests.support.scenario import Scenario

IMPORT_MUTATIONS = frozenset((
    "beginImport", "finishImport", "setImportMarks", "importSettings", "importUsers", "importEmails", "importSshKeys", "importGroups",
    "importGroupMembers", "importProjects", "importProjectMembers", "importProjectStars", "importLabels", "importMilestones",
    "importHooks", "importDeployKeys", "importVariables", "importTriggers", "importProtectedBranches",
    "importSnippets", "importIssues", "importMergeRequestBatch", "importNotes", "importCommitComments", "importCommitStatuses",
    "importBuilds", "importReleases", "importRunners",
))  # fmt: skip
CREATED_AT = "2014-03-02T10:00:00Z"


async def valid_import_input(world: "Scenario", name: str, role: str) -> dict[str, Any]:
    """The input of a valid call. The source's ids of the scenario's project, group and user are those here."""
    number = next(world.numbers)
    if name == "beginImport":
        return {"source": f"https://source{number}.example"}
    make, project = world.make, world.project(role)
    running = tables.InstanceImport(source=f"https://running{number}.example", state=InstanceImportState.RUNNING, started_at=now())
    await make.save(running)
    known = {ImportKind.PROJECT: project.id, ImportKind.NAMESPACE: project.namespace_id, ImportKind.USER: world.somebody.id}
    await make.save(
        *(
            tables.ImportIdentity(import_id=running.id, kind=kind, source_id=f"{key}", database_id=key, digest="")
            for kind, key in known.items()
        )
    )
    if name == "importNotes":
        snippet = await make.snippet(project)
        identity = {"import_id": running.id, "kind": ImportKind.SNIPPET, "source_id": f"{number}", "database_id": snippet.id}
        await make.save(tables.ImportIdentity(**identity, digest=""))
    if name == "finishImport":
        return {"importId": running.id}
    if name == "importSettings":
        return {"importId": running.id, "signInText": "Hello"}
    return {"importId": running.id, "items": [_item(name, number, project, world.somebody)]}


def _item(name: str, number: int, project: tables.Project, user: tables.User) -> dict[str, Any]:
    in_project, of_user, new = {"projectId": project.id}, {"userId": user.id}, {"sourceId": number, "createdAt": CREATED_AT}
    level = {"accessLevel": "GUEST"}
    match name:
        case "importEmails":
            return {"sourceId": number, **of_user, "email": f"imported{number}@example.org"}
        case "importSshKeys":
            return {**new, **of_user, "title": "K", "key": ssh_key(40_000 + number)}
        case "importGroups":
            return {**new, "name": "G", "path": f"imported-group{number}"}
        case "importGroupMembers":
            return {"groupId": project.namespace_id, **of_user, **level}
        case "importProjects":
            return {**new, "namespaceId": project.namespace_id, "name": "P", "path": f"imported{number}", "visibility": "PRIVATE"}
        case "importProjectMembers":
            return {**in_project, **of_user, **level}
        case "importProjectStars":
            return {**in_project, **of_user}
        case "importLabels":
            return {**in_project, "name": f"imported{number}", "color": "#FF0000"}
        case "importMilestones":
            return {**new, **in_project, "iid": 10_000 + number, "title": f"Imported {number}"}
        case "importHooks":
            return {**new, **in_project, "url": "https://ci.example"}
        case "importDeployKeys":
            return {**new, **in_project, "title": "K", "key": ssh_key(50_000 + number)}
        case "importVariables":
            return {**in_project, "key": f"IMPORTED_{number}", "value": "V"}
        case "importTriggers":
            return {**new, **in_project, "token": f"imported{number}"}
        case "importProtectedBranches":
            return {**in_project, "name": f"imported{number}"}
        case "setImportMarks":
            return {"name": "users", "value": "1"}
        case "importUsers":
            return {"sourceId": number, "username": f"imported{number}", "name": "X", "createdAt": CREATED_AT}
    times = {"createdAt": CREATED_AT, "updatedAt": CREATED_AT}
    item = {"sourceId": number, "projectId": project.id, "authorId": user.id}
    match name:
        case "importSnippets":
            return {**item, **times, "title": "T", "fileName": "a.rb", "content": "C", "visibility": "PUBLIC"}
        case "importIssues":
            return {**item, **times, "iid": number, "title": "T", "state": "OPENED"}
        case "importMergeRequestBatch":
            branches = {"sourceBranch": f"imported{number}", "targetBranch": "master"}
            return {**item, **times, **branches, "iid": number, "title": "T", "state": "OPENED"}
        case "importCommitComments":
            return {**item, "sha": "a" * 40, "note": f"N{number}", "createdAt": CREATED_AT}
        case "importCommitStatuses":
            return {**item, "sha": "a" * 40, "name": "N", "status": "SUCCESS", "createdAt": CREATED_AT}
        case "importBuilds":
            build = {"sha": "a" * 40, "ref": "master", "name": "N", "stage": "S", "status": "SUCCESS", "createdAt": CREATED_AT}
            return {"sourceId": number, "projectId": project.id, **build}
        case "importRunners":
            return {"sourceId": number, "description": "R", "projectIds": [project.id]}
        case "importReleases":
            return {"projectId": project.id, "tagName": "v1", "description": "D"}
        case "importNotes":
            return {**item, "snippetId": number, "body": "B", "system": False, "createdAt": CREATED_AT}
    raise KeyError(name)

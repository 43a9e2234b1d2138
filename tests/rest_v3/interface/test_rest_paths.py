"""`restPath`: v3 answers the same object there."""

from graphql import GraphQLInterfaceType, is_non_null_type

from graph.context import Services
from graph.fields.entities import global_id
from graph.schema import graphql_schema
from storage import tables
from tests.make import DataFactory, ssh_key
from tests.support.api_clients import Api, Ask, app_of_profile

ABSENT = {"AccessToken", "Activity", "Delivery", "Deployment", "Environment", "Pipeline", "ReviewThread", "Star", "Upload"}
"""What v3 has no path of."""
LISTS = {"CommitComment", "CommitStatus", "Label", "Release", "Tag", "Trigger"}
"""Of these v3 has a list alone: all those of the commit or the project."""
NODES = "query($ids: [ID!]!) { nodes(ids: $ids) { __typename restPath } }"


def node_types() -> set[str]:
    node = graphql_schema.type_map["Node"]
    assert isinstance(node, GraphQLInterfaceType)
    return {each.name for each in graphql_schema.get_possible_types(node)}


class TestSchema:
    def test_every_node_with_a_v3_route_has_a_rest_path(self) -> None:
        nullable = {name for name in node_types() if not is_non_null_type(graphql_schema.type_map[name].fields["restPath"].type)}  # type: ignore[attr-defined]
        assert nullable == ABSENT


class TestAnswers:
    async def test_the_same_thing(self, ask: Ask, api: Api, make: DataFactory, services: Services) -> None:
        viewer = await make.admin()
        project = await make.project(owner=viewer, history={"commits": 4}, snippets_enabled=True)
        await make.indexed(project)
        head = str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))
        issue = await make.issue(project)
        build = await make.build(project, head)
        key = tables.SshKey(user_id=viewer.id, title="K", key=ssh_key(1), fingerprint="f")
        email = tables.Email(user_id=viewer.id, email="more@example.org")
        hook = tables.Hook(url="http://hooks.invalid/")
        group = await make.group()
        member = tables.GroupMember(group_id=group.id, user_id=viewer.id, access_level=tables.AccessLevel.OWNER)
        deploy_key = tables.DeployKey(project_id=project.id, title="K", key=ssh_key(2), fingerprint="g")
        trigger = tables.Trigger(project_id=project.id, token_digest="d", sealed_token="")
        release = tables.Release(project_id=project.id, tag="v1", description="Notes")
        await make.save(key, email, hook, member, deploy_key, trigger, release)
        artifact = await make.artifact(build)
        things = {
            "User": viewer.id,
            "Group": group.id,
            "Project": project.id,
            "Issue": issue.id,
            "MergeRequest": (await make.merge_request(project)).id,
            "Milestone": (await make.milestone(project)).id,
            "Label": (await make.label(project)).id,
            "Note": (await make.note(issue)).id,
            "Snippet": (await make.snippet(project)).id,
            "Build": build.id,
            "CommitStatus": (await make.commit_status(project, head, name="lint")).id,
            "CommitComment": (await make.commit_comment(project, head, author=viewer)).id,
            "SshKey": key.id,
            "Email": email.id,
            "Hook": hook.id,
            "Upload": (await make.upload(project)).id,
            "Commit": f"{project.id}-{head}",
            "Artifact": artifact.id,
            "GroupMember": member.id,
            "DeployKey": deploy_key.id,
            "ProjectMember": (await make.member(project, await make.user(), tables.AccessLevel.GUEST)).id,
            "Runner": (await make.runner(project)).id,
            "Trigger": trigger.id,
            "Variable": (await make.variable(project, "TOKEN")).id,
            "Branch": f"{project.id}:master",
            "Tag": f"{project.id}:v1",
            "Release": release.id,
        }
        data = await ask.data(NODES, viewer, ids=[str(global_id(name, number)) for name, number in things.items()])
        assert [node and node["__typename"] for node in data["nodes"]] == list(things)
        assert node_types() - things.keys() == ABSENT - {"Upload"}
        for node in data["nodes"]:
            name, path = node["__typename"], (node["restPath"] or "").removeprefix("/api/v3")
            if name in ABSENT:
                assert path == ""
            elif name == "Hook":
                # A GET of it sends a test delivery.
                assert app_of_profile("document").find_route("GET", path).operation == "TestHook"
            elif name == "GroupMember":
                # A member alone is only changed and removed.
                assert app_of_profile("document").find_route("DELETE", path).operation == "RemoveGroupMember"
            elif name == "Artifact":
                assert (await api.get(path, viewer)).content == b"bytes"
            elif name == "Project":
                assert (await api.get(f"{path}/issues", viewer)).status_code == 200
            else:
                answered = await api.get(path, viewer)
                assert (name, answered.status_code) == (name, 200)
                shown = answered.json()
                assert isinstance(shown, list) is (name in LISTS)
                if name == "ProjectMember":
                    assert shown["access_level"] == tables.AccessLevel.GUEST
                elif name in {"CommitStatus", "Label"}:
                    assert len(shown) == 1
                elif name == "Variable":
                    assert shown["key"] == "TOKEN"
                elif name == "Branch":
                    assert shown["name"] == "master"
                elif name not in LISTS:
                    assert shown["id"] == (head if name == "Commit" else things[name])

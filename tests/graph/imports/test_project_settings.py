"""Imported keys, addresses, labels, milestones, hooks and settings of projects."""

from typing import Any

from storage import tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import MilestoneState
from tests.graph.imports.support import FINISH, T0, T1, RunningImport, begin, rows_of, user_item
from tests.graph.imports.test_projects import group_item, project_item
from tests.make import DataFactory, ssh_key
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder


async def begin_with_projects(ask: Ask, make: DataFactory) -> RunningImport:
    """An import with the users 1 and 2 and the projects 1 and 2."""
    running = await begin(ask, await make.admin())
    await running.ids("importUsers", user_item(1), user_item(2))
    await running.ids("importGroups", group_item(70))
    await running.ids("importProjects", project_item(1), project_item(2))
    return running


def items_of(number: int) -> dict[str, dict[str, Any]]:
    """An item of each kind, by the mutation that imports it."""
    project = {"projectId": 1}
    return {
        "importEmails": {"sourceId": number, "userId": 1, "email": f"more{number}@old.example"},
        "importSshKeys": {"sourceId": number, "userId": 1, "title": f"Key {number}", "key": ssh_key(1000 + number), "createdAt": T0},
        "importGroups": group_item(1000 + number),
        "importGroupMembers": {"groupId": 1000 + number, "userId": 2, "accessLevel": "GUEST"},
        "importProjects": project_item(1000 + number),
        "importProjectMembers": {"projectId": 1000 + number, "userId": 2, "accessLevel": "GUEST"},
        "importProjectStars": {"projectId": 1000 + number, "userId": 2},
        "importLabels": {**project, "name": f"label {number}", "color": "#FF0000"},
        "importMilestones": {**project, "sourceId": number, "iid": number, "title": f"M{number}", "createdAt": T0},
        "importHooks": {**project, "sourceId": number, "url": f"https://a:b@ci.example/{number}", "token": f"t{number}", "createdAt": T0},
        "importDeployKeys": {**project, "sourceId": number, "title": "D", "key": ssh_key(5000 + number), "createdAt": T0},
        "importVariables": {"projectId": 1 if number % 2 else 2, "key": f"KEY_{number}", "value": f"secret {number}"},
        "importTriggers": {**project, "token": f"trigger{number}", "createdAt": T0},
        "importProtectedBranches": {**project, "name": f"branch-{number}", "developersCanPush": True},
    }


class TestBatches:
    async def test_of_100_items_take_the_statements_of_10_and_are_unchanged_when_repeated(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        running = await begin_with_projects(ask, make)
        for mutation in items_of(1):
            counts = []
            for first, size in ((1, 10), (20, 90)):
                items = [items_of(number)[mutation] for number in range(first, first + size)]
                with statements.record() as seen:
                    assert await running.write(mutation, *items) == [("CREATED", [])] * size, mutation
                with statements.record() as repeated:
                    assert await running.write(mutation, *items) == [("UNCHANGED", [])] * size, mutation
                counts.append((len(seen), len(repeated)))
            assert counts[0] == counts[1], mutation
            assert counts[0][0] <= 12 and counts[0][1] <= 7, mutation
            assert not any("INSERT" in each or "UPDATE" in each.split("FOR ")[0] for each in repeated)


class TestKeys:
    async def test_belong_to_a_user_or_to_projects(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        running = await begin_with_projects(ask, make)
        keys = [{"sourceId": number, "userId": 1, "title": "K", "key": ssh_key(number), "createdAt": T0} for number in (1, 2)]
        assert await running.write("importSshKeys", keys[0], {**keys[1], "key": "nonsense"}, {**keys[0], "sourceId": 3}) == [
            ("CREATED", []), ("SKIPPED", ["key INVALID"]), ("SKIPPED", ["key TAKEN"]),
        ]  # fmt: skip
        deploy = [{"sourceId": 8, "projectId": project, "title": "D", "key": ssh_key(8), "createdAt": T0} for project in (1, 2)]
        assert await running.write("importDeployKeys", *deploy, {**deploy[0], "sourceId": 9, "key": ssh_key(1)}) == [
            ("CREATED", []), ("CREATED", []), ("SKIPPED", ["key TAKEN"]),
        ]  # fmt: skip
        assert [each["sourceId"] for each in running.results[:2]] == ["1/8", "2/8"]
        assert await running.write("importSshKeys", {**keys[1], "key": ssh_key(8)}) == [("SKIPPED", ["key TAKEN"])]
        assert await running.write("importSshKeys", {**keys[0], "title": "Other"}) == [("UPDATED", [])]
        (row,) = await rows_of(database, tables.SshKey)
        shown = (await api.get(f"/users/{row['user_id']}/keys", running.admin)).json()
        assert [(each["title"], each["created_at"]) for each in shown] == [("Other", "2014-03-02T10:00:00.000Z")]
        emails = [{"sourceId": 1, "userId": 1, "email": "A@b.example"}, {"sourceId": 2, "userId": 2, "email": "source1@old.example"}]
        assert await running.write("importEmails", *emails) == [("CREATED", []), ("SKIPPED", ["email TAKEN"])]


class TestProjectSettings:
    async def test_are_written_as_they_are_in_the_source(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        running = await begin_with_projects(ask, make)
        project = (await rows_of(database, tables.Project))[0]["id"]
        await running.ids("importLabels", {"projectId": 1, "name": "bug", "color": "#a1f", "description": "D", "template": True})
        milestone = {"projectId": 1, "sourceId": 4, "iid": 7, "title": "M", "dueDate": "2016-02-29", "state": "CLOSED", "createdAt": T0}
        await running.ids("importMilestones", {**milestone, "description": "D", "updatedAt": T1})
        hook = {"sourceId": 3, "projectId": 1, "url": "http://u:p@10.0.0.1/x", "token": "t", "noteEvents": True, "createdAt": T0}
        await running.ids("importHooks", hook, {"sourceId": 5, "url": "https://all.example", "enabled": True, "createdAt": T0})
        await running.ids("importVariables", {"projectId": 1, "key": "KEY", "value": "ü"})
        await running.ids("importTriggers", {"projectId": 1, "token": "tok", "createdAt": T0, "lastUsedAt": T1})
        await running.ids("importProtectedBranches", {"projectId": 1, "name": "master", "developersCanPush": True})

        (label,) = await rows_of(database, tables.Label)
        assert (label["title"], label["color"], label["description"], label["template"]) == ("bug", "#aa11ff", "D", True)
        (row,) = await rows_of(database, tables.Milestone)
        assert (row["iid"], str(row["due_date"]), row["state"], row["updated_at"].year) == (7, "2016-02-29", MilestoneState.CLOSED, 2015)
        (disabled, enabled) = await rows_of(database, tables.Hook)
        cipher = make.services.cipher
        assert (disabled["url"], cipher.decrypt(disabled["sealed_credentials"]), cipher.decrypt(disabled["sealed_token"])) == (
            "http://10.0.0.1/x", "u:p", "t",
        )  # fmt: skip
        assert (disabled["note_events"], disabled["push_events"], disabled["disabled_reason"]) == (True, True, "imported")
        assert (enabled["project_id"], enabled["disabled_at"], enabled["sealed_token"]) == (None, None, None)
        (variable,) = await rows_of(database, tables.Variable)
        assert (cipher.decrypt(variable["sealed_value"]), variable["size"]) == ("ü", 2)
        (trigger,) = await rows_of(database, tables.Trigger)
        assert (trigger["token_digest"], trigger["last_used_at"].year) == (digest_token("tok"), 2015)
        assert (await rows_of(database, tables.ProtectedBranch))[0]["developers_can_push"] is True
        created = await api.post(f"/projects/{project}/milestones", running.admin, title="Next")
        assert created.json()["iid"] == 8
        for iid, following in ((20, 21), (3, 22)):
            later = {"projectId": 1, "sourceId": 100 + iid, "iid": iid, "title": f"M{iid}", "createdAt": T0}
            await running.ids("importMilestones", later)
            created = await api.post(f"/projects/{project}/milestones", running.admin, title=f"After {iid}")
            assert created.json()["iid"] == following
        assert (await api.get(f"/projects/{project}/triggers/tok", running.admin)).json()["token"] == "tok"

        assert await running.write("importHooks", {**hook, "enabled": True, "pushEvents": False}) == [("UPDATED", [])]
        assert (await rows_of(database, tables.Hook))[0]["disabled_reason"] == "imported"
        assert await running.write("importVariables", {"projectId": 1, "key": "KEY", "value": "new"}) == [("UPDATED", [])]
        assert cipher.decrypt((await rows_of(database, tables.Variable))[0]["sealed_value"]) == "new"

    async def test_that_exist_here_are_updated_and_invalid_ones_skipped(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin_with_projects(ask, make)
        first, second = (row["id"] for row in await rows_of(database, tables.Project))
        await make.save(tables.Label(project_id=first, title="bug", color="#000000"))
        await make.save(tables.Trigger(project_id=second, token_digest=digest_token("other"), sealed_token=""))
        labels = [
            {"projectId": 1, "name": name, "color": color} for name, color in ((" bug ", "#111111"), ("a,b", "#111111"), ("c", "red"))
        ]
        assert await running.write("importLabels", *labels) == [
            ("UPDATED", []), ("SKIPPED", ["name INVALID"]), ("SKIPPED", ["color INVALID"]),
        ]  # fmt: skip
        assert [row["color"] for row in await rows_of(database, tables.Label)] == ["#111111"]
        one = {"projectId": 1, "sourceId": 1, "iid": 1, "title": "One", "createdAt": T0}
        milestones = [one, {**one, "sourceId": 2, "title": "Two"}, {**one, "sourceId": 3, "iid": 2}, {**one, "sourceId": 4, "iid": 0}]
        assert await running.write("importMilestones", *milestones) == [
            ("CREATED", []), ("SKIPPED", ["iid TAKEN"]), ("SKIPPED", ["title TAKEN"]), ("SKIPPED", ["iid INVALID"]),
        ]  # fmt: skip
        hooks = [{"sourceId": n, "projectId": 1, "url": url, "createdAt": T0} for n, url in enumerate(("ftp://x", "http://", "a b"))]
        assert await running.write("importHooks", *hooks) == [("SKIPPED", ["url INVALID"])] * 3
        triggers = [{"projectId": 1, "token": token, "createdAt": T0} for token in ("other", "", "t\n")]
        assert await running.write("importTriggers", *triggers) == [
            ("SKIPPED", ["token TAKEN"]), ("SKIPPED", ["token INVALID"]), ("SKIPPED", ["token INVALID"]),
        ]  # fmt: skip
        variables = [{"projectId": 1, "key": f"K{n}", "value": "x" * 16_000} for n in range(5)] + [
            {"projectId": 1, "key": "-", "value": ""}
        ]
        assert await running.write("importVariables", *variables) == [
            *[("CREATED", [])] * 4, ("SKIPPED", ["value INVALID"]), ("SKIPPED", ["key INVALID"]),
        ]  # fmt: skip
        assert await running.write("importVariables", *variables[:4]) == [("UNCHANGED", [])] * 4
        branches = [{"projectId": 1, "name": name} for name in ("..", "a" * 256, "fine")]
        assert [outcome for outcome, _ in await running.write("importProtectedBranches", *branches)] == ["SKIPPED", "SKIPPED", "CREATED"]


class TestExchangedValues:
    async def test_are_written(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin_with_projects(ask, make)
        names = {"importGroups": "path", "importProjects": "path", "importMilestones": "title"}
        tables_of: dict[str, Any] = {
            "importGroups": tables.Namespace,
            "importProjects": tables.Project,
            "importMilestones": tables.Milestone,
        }
        for mutation, name in names.items():
            items = [items_of(number)[mutation] for number in (1, 2, 3)]
            ids = await running.ids(mutation, *items)
            # The first two exchange their names, a new one gets that of the third.
            first, second, third = (item[name] for item in items)
            new = {**items_of(4)[mutation], name: third}
            exchanged = [{**items[0], name: second}, {**items[1], name: first}, new, {**items[2], name: "other"}]
            outcomes = [("UPDATED", []), ("UPDATED", []), ("CREATED", []), ("UPDATED", [])]
            assert await running.write(mutation, *exchanged) == outcomes, mutation
            ids.append(running.results[2]["databaseId"])
            stored = {row["id"]: row[name] for row in await rows_of(database, tables_of[mutation])}
            assert [stored[row_id] for row_id in ids] == [second, first, "other", third], mutation
            assert await running.write(mutation, *exchanged) == [("UNCHANGED", [])] * 4, mutation

    async def test_of_an_item_that_is_skipped_are_not_free(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin_with_projects(ask, make)
        items = [items_of(number)["importMilestones"] for number in (1, 2, 3)]
        await running.ids("importMilestones", *items)
        # The second would get a number that an item without changes has, so it keeps its title.
        chain = [{**items[0], "title": "M2"}, {**items[1], "title": "free", "iid": 3}, items[2]]
        assert await running.write("importMilestones", *chain) == [
            ("SKIPPED", ["title TAKEN"]),
            ("SKIPPED", ["iid TAKEN"]),
            ("UNCHANGED", []),
        ]
        assert [row["title"] for row in await rows_of(database, tables.Milestone)] == ["M1", "M2", "M3"]

    async def test_of_labels_are_those_of_their_names(self, ask: Ask, make: DataFactory, database: Database) -> None:
        """A label has no id in the source: an exchange of two names is one of everything else."""
        running = await begin_with_projects(ask, make)
        labels = [{"projectId": 1, "name": name, "color": color} for name, color in (("a", "#111111"), ("b", "#222222"))]
        ids = await running.ids("importLabels", *labels)
        labels = [{**labels[0], "color": "#222222"}, {**labels[1], "color": "#111111"}]
        assert await running.ids("importLabels", *labels) == ids
        assert [row["color"] for row in await rows_of(database, tables.Label)] == ["#222222", "#111111"]


class TestInstanceSettings:
    async def test_are_written_but_for_invalid_ones(self, ask: Ask, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        query = """mutation ($input: ImportSettingsInput!) {
            importSettings(input: $input) { result { outcome errors { field code } } userErrors { field code } }
        }"""
        values = {"importId": running.id, "signupEnabled": False, "defaultProjectVisibility": "PUBLIC", "homePageUrl": "javascript:1"}
        answers = [(await ask.data(query, running.admin, input=values))["importSettings"] for _ in range(2)]
        errors = [{"field": "homePageUrl", "code": "INVALID"}]
        assert [answer["result"] for answer in answers] == [{"outcome": each, "errors": errors} for each in ("UPDATED", "UNCHANGED")]
        (row,) = await rows_of(database, tables.Settings)
        assert (row["signup_enabled"], row["default_project_visibility"], row["home_page_url"]) == (False, 2, None)
        await ask.data(FINISH, running.admin, input={"importId": running.id})
        assert await ask.codes(query, running.admin, input=values) == ["NOT_ALLOWED"]

"""Artifacts that expire: `artifacts: expire_in`, the job that deletes them, and `keepArtifacts`."""

from dataclasses import replace
from datetime import timedelta

import pytest

from graph.artifact_access import ArtifactAccess
from graph.context import Services
from graph.jobs import maintenance
from graph.rules.builds import artifact_expiry
from graph.rules.ci.durations import parse_duration
from storage.database.clock import now
from storage.tables import AccessLevel, CheckStatus
from tests.graph.builds.test_artifacts import artifact_name, artifact_of, create_upload_ticket, files, send
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

KEEP = "mutation ($input: BuildInput!) { keepArtifacts(input: $input) { build { artifact { expiresAt } } userErrors { code } } }"
SHOWN = """query ($id: String!, $build: Int!) { project(path: $id) { build(databaseId: $build) {
    artifactsExpiredAt artifact { expiresAt createdAt } } } }"""


def test_durations() -> None:
    hour, day = 3_600, 86_400
    for text, seconds in {
        "42": 42,
        "3 mins 4 sec": 184,
        "2 hrs 20 min": 2 * hour + 1_200,
        "2h20min": 2 * hour + 1_200,
        "6 mos 1 day": 181 * day,
        "47 yrs 6 mos and 4d": 47 * 31_557_600 + 184 * day,
        "3 weeks and 2 days": 23 * day,
        "1 Week": 7 * day,
        "never": None,
    }.items():
        assert parse_duration(text) == seconds, text
    for text in ("", "soon", "1 lightyear", "1h x", "1h and", "-1", "0", "200 years", "1 " * 60, "9" * 13):
        with pytest.raises(ValueError, match="it "):
            parse_duration(text)


class TestExpiry:
    async def test_deletes_the_artifact_and_says_so(
        self, ask: Ask, make: DataFactory, services: Services, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner, reporter = await make.user(), await make.user()
        project = await make.project(owner=owner, members=[(reporter, AccessLevel.REPORTER)])
        options = {"artifacts": {"paths": ["a"], "expire_in": "1 week"}}
        build = await make.build(project, "a" * 40, status=CheckStatus.SUCCESS, options=options)
        kept = await make.build(project, "a" * 40, status=CheckStatus.SUCCESS, options=options)
        for each in (build, kept):
            await send(ArtifactAccess(services), await create_upload_ticket(ask, owner, each), b"bytes")

        async def shown() -> dict[str, object]:
            answer = await ask.data(SHOWN, owner, id=str(project.id), build=build.id)
            return answer["project"]["build"]  # type: ignore[no-any-return]

        artifact = (await shown())["artifact"]
        assert isinstance(artifact, dict)
        assert artifact["expiresAt"][:10] == str((now() + timedelta(days=7)).date())
        assert await ask.codes(KEEP, reporter, input=artifact_name(kept)) == ["FORBIDDEN"]
        assert (await ask.data(KEEP, owner, input=artifact_name(kept)))["keepArtifacts"]["build"] == {"artifact": {"expiresAt": None}}
        await maintenance.run_once(services)
        assert await artifact_of(make, build) is not None

        # More than a batch, and the number of statements of a batch does not depend on its rows.
        monkeypatch.setattr(artifact_expiry, "BATCH_SIZE", 3)
        others = [await make.build(project, "a" * 40, status=CheckStatus.SUCCESS) for _ in range(4)]
        for each in others:
            await make.artifact(each, expires_at=now() + timedelta(days=1))
        assert files(services) == 6
        later = replace(services, clock=lambda: now() + timedelta(days=8))
        with statements.assert_at_most(8):
            await artifact_expiry.expire_artifacts(later)

        assert [await artifact_of(make, each) for each in (build, *others)] == [None] * 5
        assert await artifact_of(make, kept) == ("a.zip", b"bytes")
        assert files(services) == 1
        found = await shown()
        assert (found["artifact"], str(found["artifactsExpiredAt"])[:10]) == (None, str((now() + timedelta(days=8)).date()))
        assert await ask.codes(KEEP, owner, input=artifact_name(build)) == ["NOT_FOUND"]

        await send(ArtifactAccess(services), await create_upload_ticket(ask, owner, build), b"again")
        assert (await shown())["artifactsExpiredAt"] is None

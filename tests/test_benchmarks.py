"""The race is fair only while both sides answer the same."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import cases, claims, data, in_process, peer, peer_app, servers, transfers, work_data, worked_on
from benchmarks.cases import Case
from benchmarks.load import Ask
from forgefront.app import build
from forgefront.config import Config


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, data.Data]:
    """A folder with a small database in it, and what is asked of that."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "ISSUES", 30)
        patch.setattr(work_data, "BUILDS", 30)
        patch.setattr(work_data, "MERGE_REQUESTS", 25)
        rows = data.seed(f"sqlite:///{folder / 'forgefront.db'}", 0.04)
        worked_on.give(rows.worked_on, folder / "repositories")
        return folder, rows


@pytest.mark.parametrize("place", range(6), ids=["list", "one", "post", "graphql", "builds", "merge requests"])
async def test_both_sides_answer_the_same(place: int, seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(peer, "EXTERNAL_URL", servers.EXTERNAL_URL)
    case: Case = cases.cases(rows)[place]
    ours = build(Config.load(data=folder, external_url=servers.EXTERNAL_URL))
    theirs = peer_app.create_app(f"sqlite+aiosqlite:///{folder / 'forgefront.db'}")
    try:
        async with theirs.router.lifespan_context(theirs):
            cases.compare(case, await _answer(ours, case.ours), await _answer(theirs, case.peer))
    finally:
        await ours.stop()


async def test_statements_do_not_grow_with_the_rows(seeded: tuple[Path, data.Data]) -> None:
    folder, rows = seeded
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        found = {name: await in_process.statements_of(ours, asks) for name, asks in cases.counted(rows).items()}

    assert len(found) == 3
    for counts in found.values():
        one, many = counts.values()
        assert 0 < one == many


def test_claims_find_the_builds_and_polls_find_none(seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(claims, "FEW", 40)
    monkeypatch.setattr(claims, "CLAIMS", 5)
    monkeypatch.setattr(claims, "WARMING_SECONDS", 0.1)
    url = f"sqlite:///{folder / 'forgefront.db'}"
    with servers.ours(folder, url, pinned=False) as ours:
        polled = claims.polling(ours, 1.0)
        claimed = claims.claims(ours, rows, url, 1, 0.001)

    assert polled["cores"] >= 0
    assert [row["case"] for row in claimed] == [
        "claim, 400 pending against 40: shared runner",
        "claim, 400 pending against 40: runner of six projects",
    ]
    assert all(row[side]["ms"] > 0 for row in claimed for side in ("many", "few"))


async def _answer(app: Any, ask: Ask) -> Any:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example") as client:
        response = await client.request(ask.method, ask.paths[0], headers=ask.headers, content=ask.body)
    assert response.status_code == ask.status, response.text
    return response.json()


def test_an_unlike_answer_is_unfair() -> None:
    rows = data.Data("token", (1,), ((1, 1),))
    case = cases.cases(rows)[0]
    with pytest.raises(cases.UnfairError, match="the answers differ"):
        cases.compare(case, [{"id": 1}], [{"id": 1, "title": "more"}])


def test_clone_fetch_and_push_are_done_on_both_sides(seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(transfers, "PUSHED", 3)
    made = transfers.Transfers(rows, folder, 0.01)
    with (
        servers.ours(folder, f"sqlite:///{folder / 'forgefront.db'}", pinned=False) as ours,
        made.sides(ours, pinned=False) as sides,
    ):
        found = transfers.race(made, sides, 1)
        heads = {key: side.heads(folder) for key, side in sides.items()}

    assert [row["case"] for row in found] == ["clone of 100 commits", "fetch of one new commit", "push of 3 commits"]
    assert all(row[side]["ms"] > 0 for row in found for side in ("ours", "peer"))
    assert heads["ours"] == heads["peer"]
    assert {f"refs/heads/push-{number}" for number in range(1, 6)} < heads["ours"].keys()

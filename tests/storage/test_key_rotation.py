"""The rotation of the secret key in the database."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import update

from storage import tables
from storage.database.clock import now
from storage.database.column_types import metadata
from storage.database.engine import Database
from storage.key_rotation import RotationRefused, RotationResult, list_encrypted_columns, rotate_key
from storage.secrets import TokenCipher
from tests.make import DataFactory
from tests.support.database.ciphertexts import find_ciphertexts


@pytest.fixture
def old(make: DataFactory) -> TokenCipher:
    return make.services.cipher


@pytest.fixture
def new() -> TokenCipher:
    return TokenCipher(Fernet.generate_key())


async def rotate(
    database: Database,
    old: TokenCipher,
    new: TokenCipher,
    *,
    host: str = "",
    before_commit: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RotationResult:
    return await rotate_key(database, old, new, host=host, before_commit=before_commit, progress=progress)


async def fill_encrypted_columns(database: Database, make: DataFactory) -> None:
    """Writes a ciphertext of `TABLE.COLUMN` to each encrypted column, at the end of the value if there is a prefix."""
    project = await make.project(owner=await make.user())
    await make.variable(project)
    await make.runner(project)
    await make.trigger(project)
    await make.build(project, "a" * 40)
    await make.save(
        tables.Hook(url="http://hook.example"),
        tables.TriggerRequest(project_id=project.id),
        tables.ProjectImport(project_id=project.id, url="http://git.example"),
    )
    encrypt = make.services.cipher.encrypt
    async with database.write_session() as session:
        for table, columns in list_encrypted_columns().items():
            values = {column.name: encrypt(f"{table.name}.{column.name}") for column in columns}
            if "sealed_trace_end" in values:
                values["sealed_trace_end"] = f"0:7:{values['sealed_trace_end']}"
            changed = await session.execute(update(table).values(values))
            assert changed.rowcount, f"make a row of {table.name} above"
        await session.commit()


class TestColumns:
    def test_are_those_with_the_name_of_encrypted_ones(self) -> None:
        declared = {f"{table.name}.{column.name}" for table, columns in list_encrypted_columns().items() for column in columns}
        named = {
            f"{table.name}.{column.name}"
            for table in metadata.sorted_tables
            for column in table.columns
            if column.name.startswith("sealed")
        }
        assert declared == named, "declare them by encrypted_text(), and let their names begin with `sealed`"


# On both databases, in which locks and batches differ.
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"], indirect=True)
class TestRotation:
    async def test_encrypts_every_value_anew(self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher) -> None:
        await fill_encrypted_columns(database, make)
        steps: list[tuple[int, int]] = []

        result = await rotate(database, old, new, progress=lambda done, total: steps.append((done, total)))

        found = await find_ciphertexts(database)
        assert result == RotationResult(encrypted=sum(map(len, found.values())))
        for name, values in found.items():
            for value in values:
                assert new.decrypt(value.rpartition(":")[2]) == name
        assert found.keys() == {f"{table}.{column.name}" for table, columns in list_encrypted_columns().items() for column in columns}
        assert found["builds.sealed_trace_end"][0].startswith("0:7:")
        assert steps[0][0] == 0 and steps[-1][0] == steps[-1][1] > 0

    async def test_reads_all_batches(
        self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("storage.key_rotation.BATCH_ROWS", 2)
        project = await make.project()
        for value in "abcde":
            await make.variable(project, value=value)
        await rotate(database, old, new)
        found = await find_ciphertexts(database)
        assert sorted(map(new.decrypt, found["variables.sealed_value"])) == list("abcde")

    async def test_changes_nothing_if_it_ends_before_the_commit(
        self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher
    ) -> None:
        await fill_encrypted_columns(database, make)
        before = await find_ciphertexts(database)

        def fail() -> None:
            raise OSError("no space left on device")

        with pytest.raises(OSError, match="no space left"):
            await rotate(database, old, new, before_commit=fail)
        assert await find_ciphertexts(database) == before

    async def test_can_be_repeated(self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher) -> None:
        await fill_encrypted_columns(database, make)
        first = await rotate(database, old, new)
        before = await find_ciphertexts(database)
        assert await rotate(database, old, new) == RotationResult(unchanged=first.encrypted)
        assert await find_ciphertexts(database) == before

    async def test_leaves_values_of_a_lost_key(self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher) -> None:
        project = await make.project(owner=await make.user())
        lost = TokenCipher(Fernet.generate_key()).encrypt("lost")
        await make.save(tables.Hook(url="http://hook.example", sealed_secret=lost), tables.Hook(url="http://hook.example", sealed_token=""))
        await make.save(tables.Variable(project_id=project.id, key="LOST", sealed_value="", size=0))
        assert (await rotate(database, old, new)).unreadable == 1
        assert (await find_ciphertexts(database))["hooks.sealed_secret"] == [lost]

    async def test_with_a_wrong_old_key_is_refused(self, database: Database, make: DataFactory, new: TokenCipher) -> None:
        await make.user()
        with pytest.raises(RotationRefused, match="encrypted with another key"):
            await rotate(database, TokenCipher(Fernet.generate_key()), new)

    async def test_is_refused_while_a_host_runs(self, database: Database, make: DataFactory, old: TokenCipher, new: TokenCipher) -> None:
        await make.user()
        host = partial(tables.Host, version="1", local_parts="", key_check="", started_at=now())
        await make.save(
            host(identity="1", name="alpha", address="10.0.0.1:80", heartbeat_at=now()),
            host(identity="2", name="beta", address="10.0.0.2:80", heartbeat_at=now() - timedelta(minutes=1)),
        )
        with pytest.raises(RotationRefused, match=r"these hosts run: alpha \(10\.0\.0\.1:80\)\. Stop all hosts first"):
            await rotate(database, old, new)
        # This host does not run; its row is of a process that was killed.
        assert (await rotate(database, old, new, host="1")).encrypted == 1

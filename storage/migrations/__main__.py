"""Generates the next revision from the changes of the tables: `scripts/migration "Milestones have a start date"`."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from alembic import command
from alembic.operations import MigrationScript
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from storage import migrations


def write_revision(message: str) -> Path | None:
    """Compares the tables with a new SQLite database at the head. Returns the generated file, or None without differences."""

    def skip_empty(context: MigrationContext, revision: object, scripts: list[MigrationScript]) -> None:
        if all(script.upgrade_ops is not None and script.upgrade_ops.is_empty() for script in scripts):
            scripts.clear()

    number = 1 + max((int(path.name[:4]) for path in migrations.VERSIONS.glob("[0-9]*.py")), default=0)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/forge.db"
        migrations.upgrade(url)
        with create_engine(url).connect() as connection:
            revisions = command.revision(
                migrations.configuration(connection),
                message,
                autogenerate=True,
                rev_id=f"{number:04d}",
                process_revision_directives=skip_empty,
            )
    scripts = [script for script in (revisions if isinstance(revisions, Iterable) else [revisions]) if script is not None]
    if not scripts:
        return None
    path = Path(scripts[0].path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.strip().startswith("# ###")))  # Alembic's comments
    for tidy in (["format", "--quiet"], ["check", "--quiet", "--fix"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *tidy, str(path)], check=True)  # noqa: S603 - constant arguments
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/migration",
        description="Writes storage/migrations/versions/NNNN_MESSAGE.py: what must change in a database at the head so that it"
        " equals storage/tables. Read what it wrote; moving data is yours to add. Then run: scripts/test tests/storage",
    )
    parser.add_argument("message", help='what changes, as a sentence without its full stop: "Milestones have a start date"')
    path = write_revision(parser.parse_args().message)
    print(f"wrote {path}" if path else "the tables have not changed since the last revision; nothing written")


if __name__ == "__main__":
    main()

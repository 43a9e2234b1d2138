"""Artifacts of a data folder, each with a build."""

from pathlib import Path

from storage import tables
from storage.database.engine import Database
from storage.objects.folder_store import FolderStore


async def put_artifacts(data: Path, artifacts: dict[str, bytes]) -> None:
    """Stores these objects, each with a build and its artifact."""
    store, database = FolderStore(data / "artifacts"), Database(f"sqlite:///{data}/forgefront.db")
    async with database.write_session() as session:
        for number, (key, content) in enumerate(artifacts.items(), 1):
            await store.put_bytes(key, content)
            session.add(tables.Build(id=number, project_id=1, sha="a" * 40, ref="master", name="job"))
            await session.flush()
            session.add(tables.Artifact(project_id=1, build_id=number, filename="a.zip", size=len(content), key=key))
        await session.commit()
    await database.close()

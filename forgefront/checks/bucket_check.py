"""Checks of what is in buckets: whether every row has its object, and the object its checksum."""

from pathlib import Path

from sqlalchemy import select
from sqlmodel import col

from forgefront.buckets.bucket_owner import find_foreign, remedy
from forgefront.checks.check_report import CheckReport
from forgefront.config import Config
from storage import integrity
from storage.database.engine import Database
from storage.git.packing.pack_transfer import find_problem
from storage.git.repository_cache import RepositoryCache
from storage.integrity import StoredProject
from storage.objects.object_store import ALL_SECONDS, ObjectStore, open_store
from storage.tables.git.packs import Pack

RESTORE = "restore the object from a version or a backup of the bucket; a host that has a copy of the repository still serves it"


async def check_owners(config: Config, database: Database, report: CheckReport) -> None:
    """Reports buckets that belong to another instance."""
    for name in ("artifacts", "repositories", "uploads"):
        if url := getattr(config, f"{name}_url"):
            store = open_store(url, Path(), config.s3_settings)
            try:
                if problem := await find_foreign(config, database, name, store):
                    report.add("buckets", name, problem, remedy(name))
            except OSError as error:
                report.add("buckets", name, f"it cannot be read: {error}", f"check FORGEFRONT_{name.upper()}_URL and FORGEFRONT_S3_*")
            finally:
                await store.close()


async def check_packs(database: Database, cache: RepositoryCache, projects: list[StoredProject], full: bool, report: CheckReport) -> None:
    """Compares the rows of packs with the bucket; `full` reads every object."""
    names = {project.id: project.full_path for project in projects}
    try:
        keys = await list_keys(cache.store)
        # Read after the bucket: a pack that is uploaded meanwhile has a row and no key.
        async with database.read_session() as session:
            statement = select(Pack).where(col(Pack.removed_at).is_(None)).order_by(col(Pack.id))
            packs = [row[0] for row in await session.read(statement)]
        report.checked.append(f"{len(packs)} packs")
        missing = [pack for pack in packs if pack.key not in keys]
        recent = await list_keys(cache.store) if missing else keys
        for pack in packs:
            subject = f"{names.get(pack.project_id, pack.project_id)}: {pack.name} (object {pack.key})"
            if pack.key not in keys and pack.key not in recent:
                report.add("packs", subject, "it is missing in the bucket", RESTORE)
            elif full and (problem := await find_problem(cache.store, pack)):
                report.add("packs", subject, f"it is damaged: {problem}", RESTORE)
        async with database.read_session() as session:
            known = {key for (key,) in await session.read(select(col(Pack.key)))}
        if unknown := keys - known:
            report.notes.append(f"{len(unknown)} objects in the bucket belong to no pack; the service deletes them after a day")
    except OSError as error:
        report.add("packs", "bucket", f"it cannot be read: {error}", "check FORGEFRONT_REPOSITORIES_URL and FORGEFRONT_S3_*")


def list_readable(cache: RepositoryCache, projects: list[StoredProject], full: bool, report: CheckReport) -> list[StoredProject]:
    """The projects whose repositories are compared with the database: those with a copy on this host, with `full` all."""
    found = [project for project in projects if full or cache.path_of(project.id).is_dir()]
    report.checked.append(f"{len(found)} repositories, their refs and their index")
    if len(found) < len(projects):
        report.notes.append(f"{len(projects) - len(found)} repositories have no copy on this host; --full downloads and checks them too")
    return found


async def check_uploads(config: Config, database: Database, report: CheckReport) -> None:
    """Reports uploads without an object."""
    uploads = await integrity.list_uploads(database)
    report.checked.append(f"{len(uploads)} uploads")
    store = open_store(config.uploads_url, Path(), config.s3_settings)
    try:
        keys = await list_keys(store)
    except OSError as error:
        report.add("uploads", "bucket", f"it cannot be read: {error}", "check FORGEFRONT_UPLOADS_URL and FORGEFRONT_S3_*")
        return
    finally:
        await store.close()
    missing = {upload.secret for upload in uploads if upload.secret not in keys}
    # One that was deleted meanwhile is no problem; its row is deleted before its object.
    for upload in await integrity.list_uploads(database) if missing else []:
        if upload.secret in missing:
            report.add(
                "uploads", upload.address, "it is missing in the bucket", "restore it from a backup; until then its links return 404"
            )


async def list_keys(store: ObjectStore) -> set[str]:
    """The keys of all objects. Raises OSError."""
    return {key async for keys in store.list_older_than(ALL_SECONDS) for key in keys}

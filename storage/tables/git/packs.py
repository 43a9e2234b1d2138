"""Packs of repositories in a bucket. A host downloads those that it lacks before it reads a repository (repository_cache.py)."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Delete, Select, Text, UniqueConstraint, Update, delete, func, or_, select, update
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.tables.base import Row, foreign_key


class Pack(Row, table=True):
    """A pack. `key` is that of its object, which has the bytes of the pack, then those of its index; `sha256` is that of the object.

    - `name`: `pack-` and git's checksum, without a suffix.
    - `shallow`: the commits without parents of a shallow repository that was imported with this pack, a line each.
    - `is_reachable`: True for a pack with all objects that were reachable when it was made, False for one of objects that were not; null
      for others. `created_at` is the time of the collection that made it (`storage/git/packing/object_collection.py`).
    - `removed_at`: when another pack replaced it, or when it was dropped because nothing reaches its objects; the latter is the version of
      the refs since then. Its object stays for a grace period, for hosts that are downloading it, or for a ref that needs it after all.
    """

    __tablename__ = "packs"
    __table_args__: Any = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=80)
    key: str = Field(max_length=32, index=True)
    pack_bytes: int = Field(sa_type=BigInteger)
    index_bytes: int = Field(sa_type=BigInteger)
    objects: int = Field(sa_type=BigInteger)
    sha256: str = Field(max_length=64)
    shallow: str | None = Field(default=None, sa_type=Text)
    is_reachable: bool | None = None
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    removed_at: datetime | None = Field(default=None, sa_type=Timestamp, index=True)


class RepackLease(Row, table=True):
    """The right of one host to repack a project's repository, until a moment."""

    __tablename__ = "repack_leases"
    __table_args__: Any = (UniqueConstraint("project_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    expires_at: datetime = Field(sa_type=Timestamp)


def acquire_lease(dialect: str, project_id: int, moment: datetime, expires_at: datetime) -> Any:
    """The statement that takes the lease; it changes no row while another host has it."""
    statement = insert_into(dialect, RepackLease).values(project_id=project_id, expires_at=expires_at)
    return statement.on_conflict_do_update(
        index_elements=["project_id"], set_={"expires_at": expires_at}, where=col(RepackLease.expires_at) < moment
    )


def renew_lease(project_id: int, expires_at: datetime, renewed: datetime) -> Update:
    """The statement that extends the lease that ends at `expires_at`; it changes no row if another host has taken it since."""
    found = update(RepackLease).where(col(RepackLease.project_id) == project_id, col(RepackLease.expires_at) == expires_at)
    return found.values(expires_at=renewed).execution_options(synchronize_session=False)


def release_lease(project_id: int, expires_at: datetime) -> Delete:
    """The statement that gives up the lease that ends then; one that another host has taken since ends at another time."""
    return delete(RepackLease).where(col(RepackLease.project_id) == project_id, col(RepackLease.expires_at) == expires_at)


def current(project_id: int) -> Select[Pack]:
    """The packs that together have all objects of a project."""
    return select(Pack).where(col(Pack.project_id) == project_id, col(Pack.removed_at).is_(None)).order_by(col(Pack.id))


def named(project_id: int, names: Collection[str]) -> Select[str]:
    """Those of these names that are current packs of the project."""
    return select(col(Pack.name)).where(col(Pack.project_id) == project_id, col(Pack.name).in_(names), col(Pack.removed_at).is_(None))


def upsert(dialect: str, row: Mapping[str, Any]) -> Any:
    """The statement that inserts a pack. One that was removed becomes current again, as the new object; a current one stays as it is."""
    statement = insert_into(dialect, Pack).values(row)
    changed = {name: statement.excluded[name] for name in row if name not in ("project_id", "name")}
    return statement.on_conflict_do_update(
        index_elements=["project_id", "name"],
        set_={**changed, "removed_at": None, "is_reachable": None},
        where=col(Pack.removed_at).is_not(None),
    )


def remove(project_id: int, names: Collection[str], moment: datetime) -> Update:
    """The statement that marks current packs as replaced."""
    found = update(Pack).where(col(Pack.project_id) == project_id, col(Pack.name).in_(names), col(Pack.removed_at).is_(None))
    return found.values(removed_at=moment).execution_options(synchronize_session=False)


def drop(project_id: int, names: Collection[str], version: int) -> Update:
    """The statement that removes packs of unreachable objects; `version` is that of the refs from now on."""
    return remove(project_id, names, _moment_of(version))


def dropped_since(project_id: int, version: int) -> Select[int]:
    """The id of a pack of unreachable objects that was dropped after the refs had this version."""
    found = select(col(Pack.id)).where(col(Pack.project_id) == project_id, col(Pack.is_reachable).is_(False))
    return found.where(col(Pack.removed_at) > _moment_of(version)).limit(1)


def restore_dropped(project_id: int) -> Update:
    """The statement that makes packs of unreachable objects current again whose objects were not deleted yet."""
    found = update(Pack).where(col(Pack.project_id) == project_id, col(Pack.is_reachable).is_(False), col(Pack.removed_at).is_not(None))
    return found.values(removed_at=None).execution_options(synchronize_session=False)


def _moment_of(version: int) -> datetime:
    """Versions of refs are times in microseconds (`Project.refs_version`), here without rounding."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=version)


def mark_collected(project_id: int, name: str, is_reachable: bool, moment: datetime) -> Update:
    """The statement that records which objects a collection put into a current pack, and when."""
    found = update(Pack).where(col(Pack.project_id) == project_id, col(Pack.name) == name, col(Pack.removed_at).is_(None))
    return found.values(is_reachable=is_reachable, created_at=moment).execution_options(synchronize_session=False)


def collected_at(project_id: int) -> Select[datetime | None]:
    """When the project's objects were collected; null if they never were."""
    return select(func.max(col(Pack.created_at))).where(
        col(Pack.project_id) == project_id, col(Pack.removed_at).is_(None), col(Pack.is_reachable).is_(True)
    )


def delete_removed(cutoff: datetime, dropped_cutoff: datetime) -> Delete:
    """The statement that deletes packs that were replaced before the first moment, or dropped before the second one, which is earlier."""
    is_replaced = or_(col(Pack.is_reachable).is_(None), col(Pack.is_reachable).is_(True))
    return delete(Pack).where(col(Pack.removed_at) < cutoff, or_(col(Pack.removed_at) < dropped_cutoff, is_replaced))


def existing_keys(keys: Collection[str]) -> Select[str]:
    """Those of these keys that a pack has."""
    return select(col(Pack.key)).where(col(Pack.key).in_(keys))

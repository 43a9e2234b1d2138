"""Deploy keys: public SSH keys that may fetch from one project."""

from typing import Any

from sqlalchemy import Select, UniqueConstraint, bindparam, func, select
from sqlmodel import Field, col

from storage.database.dialects import advisory_lock
from storage.tables.accounts.namespaces import Namespace
from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.projects.projects import Project


class DeployKey(TimestampedRow, table=True):
    """A public key of a project. The same key in several projects is a row in each; `fingerprint` is that of the table `ssh_keys`."""

    __tablename__ = "deploy_keys"
    __table_args__: Any = (UniqueConstraint("project_id", "fingerprint"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    title: str = Field(max_length=255)
    key: str = long_text()
    fingerprint: str = Field(max_length=64, index=True)


def of_fingerprint(fingerprint: str) -> Select[DeployKey]:
    """The deploy keys with this fingerprint, oldest first."""
    return select(DeployKey).where(col(DeployKey.fingerprint) == fingerprint).order_by(col(DeployKey.id))


def projects_of_key(fingerprint: str, namespace: str, path: str) -> Select[Project, str]:
    """(project, key) of the project with this path and namespace path, both in lower case, if it has a deploy key of this fingerprint."""
    return (
        select(Project, col(DeployKey.key))
        .join(DeployKey, col(DeployKey.project_id) == col(Project.id))
        .join(Namespace, col(Namespace.id) == col(Project.namespace_id))
        .where(col(DeployKey.fingerprint) == fingerprint, col(Namespace.path_key) == namespace, col(Project.path_key) == path)
    )


LOCK_CLASS = 7_220_319
"""Class of the advisory locks of fingerprints."""


def lock_fingerprint(dialect: str, fingerprint: str) -> Select[Any]:
    """Locks a fingerprint as `advisory_lock`: a key belongs to a user or to projects."""
    return advisory_lock(dialect, LOCK_CLASS, func.hashtext(bindparam("fingerprint", fingerprint)))

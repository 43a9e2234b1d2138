"""The settings of the instance: one row with id 1, which `storage.migrations.upgrade` creates."""

from enum import IntEnum
from typing import Any

from sqlalchemy import JSON, Select, select
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.tables.base import TimestampedRow


class BranchProtection(IntEnum):
    """The default protection of a project's first branch: the values of the interface document."""

    NONE = 0
    PARTIAL = 1
    FULL = 2


class Settings(TimestampedRow, table=True):
    """Visibility levels are 0, 1, 2; attachment size is in MB, the session delay in minutes; null lists restrict nothing."""

    __tablename__ = "settings"

    default_projects_limit: int = 10
    signup_enabled: bool = True
    signin_enabled: bool = True
    avatar_service_enabled: bool = True
    sign_in_text: str | None = None
    home_page_url: str | None = None
    default_branch_protection: int = int(BranchProtection.PARTIAL)
    microblog_sharing_enabled: bool = True
    restricted_visibility_levels: list[int] | None = Field(default=None, sa_type=JSON)
    max_attachment_size: int = 10
    session_expire_delay: int = 10080
    default_project_visibility: int = 0
    default_snippet_visibility: int = 0
    restricted_signup_domains: list[str] | None = Field(default=None, sa_type=JSON)
    user_oauth_applications: bool = True
    after_sign_out_path: str | None = None


SETTINGS_ID = 1


def current() -> Select[Settings]:
    return select(Settings).where(col(Settings.id) == SETTINGS_ID)


def for_update() -> Select[Settings]:
    """The current settings, locked until the transaction ends."""
    return current().with_for_update().execution_options(populate_existing=True)


def create_if_missing(dialect: str) -> Any:
    """The statement that inserts the row with its defaults unless it exists."""
    return insert_into(dialect, Settings).values(Settings(id=SETTINGS_ID).model_dump()).on_conflict_do_nothing(index_elements=["id"])

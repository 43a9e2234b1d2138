"""The settings of the instance: one row, id 1."""

from sqlalchemy import JSON, Select, select
from sqlmodel import Field, col

from storage.tables.base import Dated


class Settings(Dated, table=True):
    """Visibility levels are 0, 1, 2; attachment size is in MB, the session delay in minutes; null lists restrict nothing."""

    __tablename__ = "settings"

    default_projects_limit: int = 10
    signup_enabled: bool = True
    signin_enabled: bool = True
    avatar_service_enabled: bool = True
    sign_in_text: str | None = None
    home_page_url: str | None = None
    default_branch_protection: int = 1
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

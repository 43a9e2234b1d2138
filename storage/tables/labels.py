"""Labels of a project, and which issues carry them."""

from typing import Any

from sqlalchemy import Select, UniqueConstraint, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Field, SQLModel, col

from storage.database import now
from storage.tables.base import Dated, long_text, refers


class Label(Dated, table=True):
    """`title` is unique in its project, with case; `color` is `#` and six hex digits."""

    __tablename__ = "labels"
    __table_args__: Any = (UniqueConstraint("project_id", "title"), {"sqlite_autoincrement": True})

    project_id: int = refers("projects.id")
    title: str = Field(max_length=255)
    color: str = Field(max_length=7)
    description: str | None = long_text(optional=True)
    template: bool = False


class IssueLabel(SQLModel, table=True):
    __tablename__ = "issue_labels"

    issue_id: int = Field(primary_key=True, foreign_key="issues.id", ondelete="CASCADE")
    label_id: int = Field(primary_key=True, foreign_key="labels.id", ondelete="CASCADE", index=True)


def of_issues(issue_ids: list[int]) -> Select[int, Label]:
    """(issue id, label), by title."""
    return (
        select(col(IssueLabel.issue_id), Label)
        .join(Label, col(Label.id) == col(IssueLabel.label_id))
        .where(col(IssueLabel.issue_id).in_(issue_ids))
        .order_by(col(Label.title), col(Label.id))
    )


def named(project_id: int, titles: list[str]) -> Select[Label]:
    return select(Label).where(col(Label.project_id) == project_id, col(Label.title).in_(titles))


def held(label_id: int) -> Select[Label]:
    """The label as it is now, held until the transaction ends, so that nobody deletes or renames it meanwhile."""
    return select(Label).where(col(Label.id) == label_id).with_for_update().execution_options(populate_existing=True)


def kept(project_id: int, titles: list[str]) -> Select[Label]:
    """The labels as they are now, by id, which nobody deletes or renames until the transaction ends; others may hold them so as well."""
    statement = named(project_id, titles).order_by(col(Label.id))
    return statement.with_for_update(read=True, key_share=True).execution_options(populate_existing=True)


def create_missing(dialect: str, rows: list[dict[str, Any]]) -> Any:
    """The statement that creates the labels that their projects do not have yet."""
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    dated = [{"created_at": (moment := now()), "updated_at": moment, "template": False, **row} for row in rows]
    return insert(Label).values(dated).on_conflict_do_nothing(index_elements=["project_id", "title"])


def titles_of_issues(issue_ids: list[int]) -> Select[int, str]:
    """(issue id, title of a label), by title."""
    return (
        select(col(IssueLabel.issue_id), col(Label.title))
        .join(Label, col(Label.id) == col(IssueLabel.label_id))
        .where(col(IssueLabel.issue_id).in_(issue_ids))
        .order_by(col(Label.title), col(Label.id))
    )

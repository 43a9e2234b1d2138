"""Labels of a project, and their assignment to issues and merge requests."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Delete, Insert, Select, UniqueConstraint, delete, insert, select
from sqlmodel import Field, SQLModel, col

from storage.database.clock import now
from storage.database.dialects import insert_into
from storage.tables.base import TimestampedRow, foreign_key, long_text


class Label(TimestampedRow, table=True):
    """A label. `title` is unique in its project, case-sensitively; `color` is `#` and six hex digits."""

    __tablename__ = "labels"
    __table_args__: Any = (UniqueConstraint("project_id", "title"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    title: str = Field(max_length=255)
    color: str = Field(max_length=7)
    description: str | None = long_text(optional=True)
    template: bool = False


class IssueLabel(SQLModel, table=True):
    __tablename__ = "issue_labels"

    issue_id: int = Field(primary_key=True, foreign_key="issues.id", ondelete="CASCADE")
    label_id: int = Field(primary_key=True, foreign_key="labels.id", ondelete="CASCADE", index=True)


class MergeRequestLabel(SQLModel, table=True):
    __tablename__ = "merge_request_labels"

    merge_request_id: int = Field(primary_key=True, foreign_key="merge_requests.id", ondelete="CASCADE")
    label_id: int = Field(primary_key=True, foreign_key="labels.id", ondelete="CASCADE", index=True)


def of_issues(issue_ids: list[int]) -> Select[int, Label]:
    """(issue id, label), by title."""
    return _joined_labels(Label, IssueLabel.issue_id, issue_ids)


def of_merge_requests(merge_request_ids: list[int]) -> Select[int, Label]:
    """(merge request id, label), by title."""
    return _joined_labels(Label, MergeRequestLabel.merge_request_id, merge_request_ids)


def named(project_id: int, titles: list[str]) -> Select[Label]:
    return select(Label).where(col(Label.project_id) == project_id, col(Label.title).in_(titles))


def for_update(label_id: int) -> Select[Label]:
    """The current label, locked until the transaction ends, so that it is not deleted or renamed meanwhile."""
    return select(Label).where(col(Label.id) == label_id).with_for_update().execution_options(populate_existing=True)


def for_key_share(project_id: int, titles: list[str]) -> Select[Label]:
    """The current labels, ordered by id, with a shared lock: they cannot be deleted or renamed until the transaction ends."""
    statement = named(project_id, titles).order_by(col(Label.id))
    return statement.with_for_update(read=True, key_share=True).execution_options(populate_existing=True)


def of_projects_for_key_share(project_ids: Collection[int], titles: Collection[str]) -> Select[Label]:
    """The labels of these projects with these titles, locked as by `for_key_share`."""
    statement: Select[Label] = select(Label).where(col(Label.project_id).in_(project_ids), col(Label.title).in_(titles))
    return statement.order_by(col(Label.id)).with_for_update(read=True, key_share=True).execution_options(populate_existing=True)


def insert_missing(dialect: str, rows: list[dict[str, Any]]) -> Any:
    """The statement that inserts the labels that do not exist in their projects."""
    dated = [{"created_at": (moment := now()), "updated_at": moment, "template": False, **row} for row in rows]
    return insert_into(dialect, Label).values(dated).on_conflict_do_nothing(index_elements=["project_id", "title"])


def titles_of_issues(issue_ids: list[int]) -> Select[int, str]:
    """(issue id, title of a label), by title."""
    return _joined_labels(col(Label.title), IssueLabel.issue_id, issue_ids)


def titles_of_merge_requests(merge_request_ids: list[int]) -> Select[int, str]:
    """(merge request id, title of a label), by title."""
    return _joined_labels(col(Label.title), MergeRequestLabel.merge_request_id, merge_request_ids)


def detach_all(key: Any, subject_id: int) -> Any:
    """The statement that removes all labels of an object and returns their ids; `key` is its column, such as `IssueLabel.issue_id`."""
    link = key.class_
    return delete(link).where(col(key) == subject_id).returning(col(link.label_id))


def detach_all_of(key: Any, subject_ids: Collection[int]) -> Delete:
    """The statement that removes all labels of these objects; `key` as in `detach_all`."""
    return delete(key.class_).where(col(key).in_(subject_ids))


def attach(key: Any, subject_id: int, label_ids: list[int]) -> Insert:
    """The statement that assigns these labels (at least one) to an object without labels."""
    return insert(key.class_).values([{key.key: subject_id, "label_id": label_id} for label_id in label_ids])


def _joined_labels(subject: Any, key: Any, ids: list[int]) -> Select[int, Any]:
    """(object id, `subject` of a label), ordered by title; `key` is the object's column, such as `IssueLabel.issue_id`."""
    joined: Select[int, Any] = select(col(key), subject).join(Label, col(Label.id) == col(key.class_.label_id))
    return joined.where(col(key).in_(ids)).order_by(col(Label.title), col(Label.id))

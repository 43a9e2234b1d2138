"""The result of an operation, and the conversion of exceptions to its errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from graphql import GraphQLError

from graph.errors import Code, Forbidden, Internal, LimitExceeded, NotFound, OperationError, Unavailable
from graph.operations.limits import MAX_ANSWER_BYTES
from graph.operations.rate_limits import RateUsage
from graph.served_files import ServedFile
from storage.database.errors import describe_error, is_unavailable
from storage.database.text_budget import TextLimitExceeded
from storage.disk_full import is_disk_full as is_disk_full
from storage.secrets import PasswordsBusy

ANSWER_TOO_LARGE_MESSAGE = (
    f"The answer exceeds the limit of {MAX_ANSWER_BYTES // 2**20} MiB. Request fewer rows, or leave out long fields such as `description`."
)

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One entry of `errors[]`. `subject` is the type of the object that was not found; `reason` is shown to legacy clients after
    "403 Forbidden - " or "404 Not Found - "."""

    code: Code
    message: str
    path: list[str | int] | None = None
    subject: str | None = None
    reason: str | None = None
    retry_after: int | None = None
    locations: list[dict[str, int]] | None = None


@dataclass(slots=True)
class OperationResult:
    """The result of an operation: data that is serializable as JSON, enums as their names, timestamps as fixed-width RFC 3339 strings."""

    data: dict[str, Any] | None
    errors: list[ErrorEntry] = field(default_factory=list)
    viewer_id: int | None = None
    files: Mapping[str, ServedFile] = field(default_factory=dict)
    """Files that the data refers to by handles (`Artifact.stream`); the endpoint that ran the operation sends them."""
    is_subscription: bool = False
    """The operation is a subscription, which was not run, because the caller requested a single response."""
    rate_usage: RateUsage | None = None
    """The charge to the viewer; None for operations that are not charged, and without a viewer."""
    is_large: bool = False
    """The data is written in pieces (`graph/operations/answer_size.py`)."""
    is_formatted: bool = False
    """The data has the output format of the prepared operation. Only plans produce it; otherwise the caller converts the data."""

    def would_be_retried(self) -> bool:
        """Whether clients of a prepared mutation would repeat the request.

        Not where something within the changed object could not be read, which is null in an answer that is otherwise complete.
        """
        for error in self.errors:
            if error.code is Code.LIMIT_EXCEEDED or (error.code is Code.UNAVAILABLE and self._is_object_missing(error)):
                return True
        return False

    def _is_object_missing(self, error: ErrorEntry) -> bool:
        """Whether an error leaves no object: at `mutation.payload field`, the first two keys of its path, is null."""
        value: Any = self.data if error.path else None
        for key in (error.path or ())[:2]:
            value = value[key] if isinstance(value, dict) else None
        return value is None


def to_operation_error(error: BaseException, request_id: str) -> OperationError:
    """Converts an exception to an OperationError. Unexpected exceptions are logged and masked as Internal."""
    if isinstance(error, OperationError):
        return error
    if isinstance(error, PasswordsBusy):
        return Unavailable("Too many people are signing in; try again in a moment.")
    if isinstance(error, TextLimitExceeded):
        return LimitExceeded(ANSWER_TOO_LARGE_MESSAGE)
    if is_unavailable(error):
        log.warning("database unavailable", request_id=request_id, error=describe_error(error))
        return Unavailable()
    if is_disk_full(error):
        log.warning("disk full", request_id=request_id, error=str(error))
        return Unavailable("The disk of the service is full; nothing was changed.")
    log.error("unexpected error", request_id=request_id, exc_info=error)
    return Internal()


def make_error_entry(error: OperationError, path: list[str | int] | None = None) -> ErrorEntry:
    return ErrorEntry(
        code=error.code,
        message=error.message,
        path=path,
        subject=error.subject,
        reason=error.reason if isinstance(error, Forbidden | NotFound) else None,
        retry_after=getattr(error, "retry_after", None),
    )


def make_graphql_error_entry(error: GraphQLError, request_id: str) -> ErrorEntry:
    """Converts an error of validation or execution."""
    if error.original_error is None or isinstance(error.original_error, GraphQLError):
        locations = [{"line": location.line, "column": location.column} for location in error.locations or ()]
        return ErrorEntry(Code.BAD_REQUEST, error.message, error.path, locations=locations or None)
    return make_error_entry(to_operation_error(error.original_error, request_id), error.path)

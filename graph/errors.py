"""All errors of the graph, with their codes.

ForgeError
├── OperationError            reported in `errors[]`
│   ├── Unauthenticated       no viewer, or a blocked one
│   ├── Forbidden             the viewer can see the object but is not allowed to perform the action
│   │   └── InsufficientScope     the viewer's access token lacks the scope that the operation needs
│   ├── NotFound              the object does not exist, or the viewer is not allowed to see it
│   ├── LimitExceeded         the operation or the viewer exceeds a limit
│   ├── Unavailable           the database or a repository is unavailable; nothing was changed
│   │   └── UnreadableRepository  git cannot read a repository
│   ├── BadRequest            the operation is malformed: a cursor of another list, an unknown document
│   └── Internal              an internal error; its details are only logged
│       └── ResultUnreadable      the mutation was committed, but its result cannot be answered
└── UserError                 reported as `userErrors`, and the whole operation is rolled back
    ├── Invalid               a value is invalid
    ├── Required              a required value is missing
    ├── Taken                 a value is already used by another object
    ├── Conflict              an equal object exists, or the object was changed concurrently
    ├── NotAllowed            the action is not allowed, or not in the object's current state
    ├── NotMergeable          the branches cannot be merged
    ├── NotSet                there is nothing to cancel
    └── TooLarge              the data exceeds the size limit of the instance
"""

from enum import StrEnum


class Code(StrEnum):
    """The closed list of codes."""

    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    INSUFFICIENT_SCOPE = "INSUFFICIENT_SCOPE"
    NOT_FOUND = "NOT_FOUND"
    PERSISTED_QUERY_NOT_SUPPORTED = "PERSISTED_QUERY_NOT_SUPPORTED"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    UNAVAILABLE = "UNAVAILABLE"
    BAD_REQUEST = "BAD_REQUEST"
    INTERNAL = "INTERNAL"
    INVALID = "INVALID"
    REQUIRED = "REQUIRED"
    TAKEN = "TAKEN"
    CONFLICT = "CONFLICT"
    NOT_ALLOWED = "NOT_ALLOWED"
    NOT_MERGEABLE = "NOT_MERGEABLE"
    NOT_SET = "NOT_SET"
    TOO_LARGE = "TOO_LARGE"


class ForgeError(Exception):
    code: Code

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class OperationError(ForgeError):
    """An error that ends the field in which it is raised. `subject` is the type of object that it concerns, such as `Project`."""

    def __init__(self, message: str, *, subject: str | None = None) -> None:
        super().__init__(message)
        self.subject = subject


class Unauthenticated(OperationError):
    code = Code.UNAUTHENTICATED

    def __init__(self, message: str = "Sign in: send a private token as PRIVATE-TOKEN or as Authorization: Bearer.") -> None:
        super().__init__(message)


class Forbidden(OperationError):
    """`reason` is shown to legacy clients after "403 Forbidden - "."""

    code = Code.FORBIDDEN

    def __init__(self, reason: str | None = None, *, subject: str | None = None) -> None:
        super().__init__(reason or "You are not allowed to do this.", subject=subject)
        self.reason = reason


class InsufficientScope(Forbidden):
    code = Code.INSUFFICIENT_SCOPE


class NotFound(OperationError):
    """`reason` is shown to legacy clients after "404 Not Found - "."""

    code = Code.NOT_FOUND

    def __init__(self, subject: str, reason: str | None = None) -> None:
        super().__init__(f"{subject} not found.", subject=subject)
        self.reason = reason


class LimitExceeded(OperationError):
    """`retry_after`, in seconds, is set if a retry may succeed."""

    code = Code.LIMIT_EXCEEDED

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(OperationError):
    code = Code.UNAVAILABLE

    def __init__(self, message: str = "The service is temporarily unavailable; try again in a moment.") -> None:
        super().__init__(message)
        self.retry_after = 2


class UnreadableRepository(Unavailable):
    def __init__(self) -> None:
        super().__init__("The repository cannot be read. Retry, or ask an administrator to check the server log.")


class BadRequest(OperationError):
    code = Code.BAD_REQUEST


class Internal(OperationError):
    code = Code.INTERNAL

    def __init__(self, message: str = "Internal server error; the server log contains the details under this request ID.") -> None:
        super().__init__(message)


class ResultUnreadable(Internal):
    """Not an error that invites clients to repeat the mutation, as LimitExceeded and Unavailable do: it would change things twice."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The change was made, but its result {reason}. Do not repeat the request; read the object instead.")


class UserError(ForgeError):
    """`field` is the schema's name of the input field that caused the error (`dueDate`); `value` the offending item, if it is a list."""

    def __init__(self, field: str | None, message: str, *, value: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class Invalid(UserError):
    code = Code.INVALID


class Required(UserError):
    code = Code.REQUIRED

    def __init__(self, field: str) -> None:
        super().__init__(field, "can't be blank")


class Taken(UserError):
    code = Code.TAKEN

    def __init__(self, field: str, message: str = "has already been taken") -> None:
        super().__init__(field, message)


class Conflict(UserError):
    code = Code.CONFLICT


class NotAllowed(UserError):
    code = Code.NOT_ALLOWED


class NotMergeable(UserError):
    code = Code.NOT_MERGEABLE


class NotSet(UserError):
    code = Code.NOT_SET


class TooLarge(UserError):
    code = Code.TOO_LARGE


class UserErrors(UserError):
    """Several user errors, in the order in which they are shown."""

    code = Code.INVALID

    def __init__(self, errors: list[UserError]) -> None:
        super().__init__(errors[0].field, errors[0].message)
        self.errors = errors

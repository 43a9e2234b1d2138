"""What can go wrong when the instance that is imported is read.

SourceError
├── SourceUnreachable   no connection after all attempts: the run ends
├── SourceUnauthorized  401: the token is not valid, or no longer
└── SourceSkipped       this item cannot be read, others can
    ├── SourceForbidden     403
    ├── SourceMissing       404, 405, 410
    ├── SourceFailed        5xx or 429 after all attempts, and other statuses
    └── SourceMalformed     not JSON, of another type, or pages that do not end
        └── SourceTooLarge
"""


class SourceError(Exception):
    """The instance did not answer as expected; `path` is that of the request."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class SourceUnreachable(SourceError):
    """No connection after all attempts."""


class SourceUnauthorized(SourceError):
    """The token is not valid."""


class SourceSkipped(SourceError):
    """This resource cannot be read; others can."""


class SourceForbidden(SourceSkipped):
    """The token lacks the right to read the resource."""


class SourceMissing(SourceSkipped):
    """The resource does not exist, or the instance has no such route."""


class SourceFailed(SourceSkipped):
    """The instance failed to answer after all attempts."""


class SourceMalformed(SourceSkipped):
    """The answer is not what the interface promises."""


class SourceTooLarge(SourceMalformed):
    """The answer is larger than allowed."""

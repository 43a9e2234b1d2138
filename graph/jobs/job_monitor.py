"""The runs of the background jobs of this process: when each ran, and the message of its last failure. Administrators see them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from storage.database.clock import now
from storage.database.errors import describe_error


class JobState(Enum):
    """The current state of a job."""

    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    FINISHED = "finished"


@dataclass
class JobRecord:
    """A job with its runs in this process.

    - `interval_seconds`: seconds between the end of a run and the next; None for a job that runs until the process ends.
    - `finished_at`: when a run last ended, with or without an error.
    - `last_error`: its class and the first line of its message, without values of statements; `last_failed_at` is its time.
    """

    name: str
    interval_seconds: float | None
    state: JobState
    started_at: datetime
    finished_at: datetime | None = None
    run_count: int = 0
    failure_count: int = 0
    last_error: str | None = None
    last_failed_at: datetime | None = None


class JobMonitor:
    """Records the runs of jobs by their names."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    def list_jobs(self) -> list[JobRecord]:
        """The jobs that ran, sorted by name."""
        return [self._records[name] for name in sorted(self._records)]

    @contextmanager
    def record_run(self, name: str, interval_seconds: float | None = None) -> Iterator[None]:
        """Records the block as a run of the job. An exception is recorded and raised again; a cancellation is no failure."""
        moment = now()
        record = self._records.setdefault(name, JobRecord(name, interval_seconds, JobState.RUNNING, moment))
        record.state, record.started_at = JobState.RUNNING, moment
        record.run_count += 1
        try:
            yield
        except Exception as error:
            record.state = JobState.FAILED
            record.failure_count += 1
            record.last_error, record.last_failed_at = describe_error(error), now()
            raise
        else:
            record.state = JobState.WAITING if interval_seconds is not None else JobState.FINISHED
        finally:
            record.finished_at = now()

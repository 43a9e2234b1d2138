"""The state of the instance, for administrators: health, background jobs, hosts, sizes."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.scalars import BigInt
from graph.jobs.job_monitor import JobRecord, JobState
from graph.rules import instance_status
from graph.rules.permissions.policy import Action, require
from storage.tables.hosts import Host

BackgroundJobState = strawberry.enum(JobState, name="BackgroundJobState", description="What a background job does now.")


@strawberry.type(description="Check that decides whether the server process is ready to serve, as at `/-/readiness`.")
class HealthCheck:
    name: str = strawberry.field(description="What is checked, such as `database`.")
    problem: str | None = strawberry.field(description="Why it failed; null if it passed.")


@strawberry.type(description="Background job of the server process that answers. Each process has jobs of its own.")
class BackgroundJob:
    name: str = strawberry.field(description="Name.")
    state: BackgroundJobState = strawberry.field(description="What it does now.")  # type: ignore[valid-type]
    interval_seconds: float | None = strawberry.field(
        description="Seconds between the end of a run and the next; null for a job that runs until the process ends."
    )
    started_at: datetime = strawberry.field(description="When the newest run began.")
    finished_at: datetime | None = strawberry.field(description="When a run last ended; null if none has.")
    run_count: int = strawberry.field(description="Number of runs since the process started.")
    failure_count: int = strawberry.field(description="Number of runs that failed.")
    last_failed_at: datetime | None = strawberry.field(description="When a run last failed; null if none has.")
    last_error: str | None = strawberry.field(description="Error of the last run that failed; null if none has.")

    @classmethod
    def of(cls, record: JobRecord) -> "BackgroundJob":
        return cls(**vars(record))


@strawberry.type(
    description="Host: a machine, or a data folder of one, whose server processes use the database. Hosts exist with PostgreSQL only."
)
class InstanceHost:
    name: str = strawberry.field(description="Name of the machine.")
    address: str = strawberry.field(description="Address at which it listens.")
    version: str = strawberry.field(description="Version of the service.")
    started_at: datetime = strawberry.field(description="When it was registered.")
    heartbeat_at: datetime = strawberry.field(description="When one of its processes was last running.")
    is_live: bool = strawberry.field(description="Whether one of its processes was running within the last twenty seconds.")

    @classmethod
    def of(cls, host: Host, is_live: bool) -> "InstanceHost":
        return cls(
            name=host.name,
            address=host.address,
            version=host.version,
            started_at=host.started_at,
            heartbeat_at=host.heartbeat_at,
            is_live=is_live,
        )


@strawberry.type(description="Database of the instance.")
class DatabaseInfo:
    version: str = strawberry.field(description="Name and version, such as `PostgreSQL 16.2`.")
    size_bytes: BigInt = strawberry.field(description="Size in bytes.")


@strawberry.type(description="Space on the disk of the repositories.")
class DiskInfo:
    total_bytes: BigInt = strawberry.field(description="Size of the disk in bytes.")
    free_bytes: BigInt = strawberry.field(description="Bytes that the service can still write.")


@strawberry.type(description="Work that waits.")
class BacklogInfo:
    waiting_builds: int = strawberry.field(description="Number of builds that wait for a runner.")
    waiting_deliveries: int = strawberry.field(description="Number of pending deliveries to hooks.")
    oldest_delivery_seconds: float = strawberry.field(description="Age of the oldest pending delivery in seconds; 0 if there is none.")


@strawberry.type(description="State of the instance. Visible to administrators only.")
class InstanceStatus:
    version: str = strawberry.field(description="Version of the service.")
    python_version: str = strawberry.field(description="Version of Python.")
    process: str = strawberry.field(description="Server process that answers: the name of its machine and its process ID.")

    @strawberry.field(description="Checks that decide whether the process is ready to serve.")
    async def health_checks(self, info: Info) -> list[HealthCheck]:
        problems = await info.context.services.health_checks.find_problems()
        return [HealthCheck(name=name, problem=problem) for name, problem in problems.items()]

    @strawberry.field(description="Background jobs of the process, sorted by name.")
    async def background_jobs(self, info: Info) -> list[BackgroundJob]:
        return [BackgroundJob.of(record) for record in info.context.services.job_monitor.list_jobs()]

    @strawberry.field(description="Hosts that were running within the last day; empty with SQLite, which has a single one.")
    async def hosts(self, info: Info) -> list[InstanceHost]:
        return [InstanceHost.of(host, is_live) for host, is_live in await instance_status.list_hosts(info.context)]

    @strawberry.field(description="The database.")
    async def database(self, info: Info) -> DatabaseInfo:
        status = await instance_status.describe_database(info.context)
        return DatabaseInfo(version=status.version, size_bytes=BigInt(status.size))

    @strawberry.field(description="Space on the disk of the repositories; null if it cannot be read.")
    async def disk(self, info: Info) -> DiskInfo | None:
        space = await instance_status.measure_disk(info.context)
        return DiskInfo(total_bytes=BigInt(space.total), free_bytes=BigInt(space.free)) if space is not None else None

    @strawberry.field(description="Work that waits.")
    async def backlog(self, info: Info) -> BacklogInfo:
        found = await instance_status.measure_backlog(info.context)
        return BacklogInfo(
            waiting_builds=found.waiting_builds,
            waiting_deliveries=found.waiting_deliveries,
            oldest_delivery_seconds=found.oldest_delivery_seconds,
        )


@strawberry.type
class InstanceStatusQueries:
    @strawberry.field(description="State of the instance. Administrators only.")
    async def instance_status(self, info: Info) -> InstanceStatus | None:
        await require(info.context, Action.READ_STATUS)
        return InstanceStatus(**instance_status.describe_process()._asdict())

"""The part of the configuration that limits git: concurrent fetches and pushes, sizes, and what one git process may use."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import BaseSettings

from storage.git.subprocesses.limits import MEGABYTE, ProcessLimits

if TYPE_CHECKING:
    from storage.git.protocol.transport import Transport


class GitSettings(BaseSettings):
    """Limits of git operations and of each git process. `Config` inherits these fields."""

    git_processes: int = Field(
        default=8, ge=1, le=256, description="Maximum number of concurrent fetches, and of concurrent pushes, in each server process."
    )
    largest_push: int = Field(default=4096, ge=1, le=1_000_000, description="Maximum size of a push, in MB.")
    largest_object: int = Field(
        default=2048,
        ge=1,
        le=1_000_000,
        description="Maximum size of an unpacked file in a push, in MB. Its pack may be much smaller.",
    )
    git_indexing: int = Field(
        default=2,
        ge=1,
        le=256,
        description="Maximum number of received pushes that each server process indexes concurrently. Other pushes wait.",
    )
    git_memory: int = Field(
        default=2048,
        ge=256,
        le=1_000_000,
        description="Address space of each git process, in MB. Cloning ten million objects takes 2000 MB.",
    )
    push_memory: int = Field(
        default=1024,
        ge=256,
        le=1_000_000,
        description="Address space of each git process that receives a push, in MB. Resolving a file that was sent as a delta takes"
        " three times its size.",
    )
    git_cpu_seconds: int = Field(default=900, ge=10, le=86_400, description="CPU time of each git process, in seconds.")
    git_file_size: int = Field(
        default=65_536,
        ge=256,
        le=10_000_000,
        description="Maximum size of a file that a git process writes, in MB. It must exceed the size of the largest repository.",
    )
    git_user_processes: int = Field(
        default=4096,
        ge=64,
        le=1_000_000,
        description="git starts no new process while the user of the service runs this many processes and threads. Root is not limited.",
    )

    @property
    def git_limits(self) -> ProcessLimits:
        """Limits of each git process."""
        return ProcessLimits(self.git_memory * MEGABYTE, self.git_cpu_seconds, self.git_file_size * MEGABYTE, self.git_user_processes)

    @property
    def push_limits(self) -> ProcessLimits:
        """Limits of each git process of a push. git completes a thin pack with stored objects, hence twice the size of a push."""
        file_size = min(self.git_file_size, 2 * self.largest_push) * MEGABYTE
        return replace(self.git_limits, memory_bytes=self.push_memory * MEGABYTE, file_bytes=file_size)

    def create_transport(self) -> "Transport":
        """The git transport with these limits; HTTP and SSH share it."""
        from storage.git.protocol.transport import Transport

        return Transport(
            max_processes=self.git_processes,
            max_push_bytes=self.largest_push * MEGABYTE,
            max_object_bytes=self.largest_object * MEGABYTE,
            max_indexing=self.git_indexing,
            fetch_limits=self.git_limits,
            push_limits=self.push_limits,
        )

"""The configuration of the runner: a TOML file, or the options of the command line for one forge."""

import re
import stat
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from forgefront.runner.build_cache import MAX_CACHE_BYTES, BuildCache
from forgefront.runner.executors.container import ContainerSettings
from forgefront.runner.executors.executor import Limits
from forgefront.runner.executors.selection import ExecutorSettings
from forgefront.settings.bucket_settings import BUCKET_PATTERN
from storage.objects.object_store import open_store

MAX_CONCURRENT = 64
SIZE_PATTERN = re.compile(r"([0-9]+) ?([KMGT]?)i?B?", re.IGNORECASE)
MIN_SIZE_BYTES = 2**20

log = structlog.get_logger("runner")


class InvalidRunnerConfig(Exception):
    """The configuration cannot be used; the message has a line for each problem."""


def parse_size(value: Any) -> Any:
    """Bytes: a number, or a string with K, M, G or T.

    >>> parse_size("2G")
    2147483648
    """
    if not isinstance(value, str):
        return value
    found = SIZE_PATTERN.fullmatch(value.strip())
    if found is None:
        raise ValueError('must be a size such as "512M" or "2G"')
    return int(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")


Size = Annotated[int | None, BeforeValidator(parse_size), Field(ge=MIN_SIZE_BYTES)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LimitsSection(_Section):
    """Limits of each build."""

    memory: Size = None
    disk: Size = None
    cpus: float | None = Field(default=None, gt=0, le=4096)
    processes: int | None = Field(default=None, ge=16)


class BubblewrapSection(_Section):
    """What sandboxes may do."""

    network: bool = True
    read_only: tuple[Path, ...] = ()

    @field_validator("read_only")
    @classmethod
    def _require_absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        if any(not path.is_absolute() for path in paths):
            raise ValueError("must be absolute paths")
        return paths


class ContainerSection(_Section):
    """How containers are run."""

    program: str = ""
    image: str = ContainerSettings().image
    pull: Literal["missing", "always", "never"] = "missing"
    network: bool = True
    options: tuple[str, ...] = ()
    allowed_images: tuple[str, ...] = ()


class CacheSection(_Section):
    """Where caches are. Without a bucket they are in the folder, by default `cache` beside the builds."""

    enabled: bool = True
    folder: Path | None = None
    bucket: str = ""
    endpoint: str = ""
    region: str = ""
    max_size: Size = MAX_CACHE_BYTES

    @field_validator("bucket")
    @classmethod
    def _validate_bucket(cls, url: str) -> str:
        if url and not BUCKET_PATTERN.fullmatch(url):
            raise ValueError("must be an address such as s3://bucket/prefix")
        return url


class ForgeSection(_Section):
    """A service from which builds are taken."""

    url: str
    token: str = Field(default="", repr=False)
    token_file: Path | None = None
    name: str = ""
    concurrent: int | None = Field(default=None, ge=1, le=MAX_CONCURRENT)
    allow_http: bool = False

    @model_validator(mode="after")
    def _validate(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ValueError("url must be an address such as https://forge.example.com")
        if parts.scheme == "http" and not self.allow_http and not is_local(parts.hostname):
            raise ValueError(
                f"url is {self.url}: tokens and secret variables would be sent to another machine without encryption. Use https://,"
                " or permit it with allow_http = true or --allow-http"
            )
        if bool(self.token) == bool(self.token_file):
            raise ValueError("one of token and token_file is needed")
        return self

    def read_token(self) -> str:
        """Raises InvalidRunnerConfig."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRunnerConfig(f"token_file {self.token_file} cannot be read: {error}") from None


class RunnerSettings(_Section):
    """The whole configuration."""

    forge: tuple[ForgeSection, ...]
    concurrent: int = Field(default=1, ge=1, le=MAX_CONCURRENT)
    builds_dir: Path = Path("builds")
    grace: float = Field(default=30.0, ge=0)
    metrics: str = ""
    executor: Literal["auto", "bubblewrap", "container", "shell"] = "auto"
    limits: LimitsSection = LimitsSection()
    bubblewrap: BubblewrapSection = BubblewrapSection()
    container: ContainerSection = ContainerSection()
    cache: CacheSection = CacheSection()

    @field_validator("metrics")
    @classmethod
    def _validate_metrics(cls, address: str) -> str:
        host, _, port = address.rpartition(":")
        if address and not (host and port.isascii() and port.isdigit() and int(port) < 2**16):
            raise ValueError('must be an address such as "127.0.0.1:9253"')
        return address

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        host, _, port = self.metrics.rpartition(":")
        return (host.strip("[]"), int(port)) if host else None

    @property
    def executor_settings(self) -> ExecutorSettings:
        limits, container = self.limits, self.container
        return ExecutorSettings(
            self.executor,
            Limits(limits.memory, limits.cpus, limits.processes, limits.disk),
            self.bubblewrap.network,
            self.bubblewrap.read_only,
            ContainerSettings(
                container.program, container.image, container.pull, container.network, container.options, container.allowed_images
            ),
        )

    def open_cache(self) -> BuildCache | None:
        """The store of caches; None if they are off. Raises InvalidRunnerConfig."""
        if not self.cache.enabled:
            return None
        settings = {name: value for name in ("endpoint", "region") if (value := getattr(self.cache, name))}
        try:
            store = open_store(self.cache.bucket, (self.cache.folder or self.builds_dir / "cache").absolute(), settings)
        except (ValueError, OSError) as error:
            raise InvalidRunnerConfig(f"cache: {error}") from None
        return BuildCache(store, max_bytes=self.cache.max_size or MAX_CACHE_BYTES)


def load_settings(file: Path | None, options: dict[str, Any], forge: dict[str, Any]) -> RunnerSettings:
    """The settings of a file and of the command line, which comes first. `forge` is the one of the command line; without a file it is the
    only one. Raises InvalidRunnerConfig."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) and "token" in str(values.get("forge")):
                log.warning("other users may read the configuration", file=str(file), remedy=f"chmod 600 {file}")
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidRunnerConfig(f"{file}: {error}") from None
    if forge.get("url"):
        values["forge"] = [forge]
    values |= options
    if not values.get("forge"):
        raise InvalidRunnerConfig("No forge is named. Use --url and FORGEFRONT_RUNNER_TOKEN, or --config with a [[forge]] section.")
    try:
        return RunnerSettings.model_validate(values)
    except ValidationError as error:
        raise InvalidRunnerConfig("\n".join(_describe(problem) for problem in error.errors(include_input=False))) from None


def _describe(problem: Any) -> str:
    """A line about an error of pydantic: `forge.0: url must be …`."""
    place = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def is_local(host: str) -> bool:
    """Whether what is sent to this host stays on the machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

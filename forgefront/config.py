"""Configuration of the process, read once at start. ("Settings" are the v3 resource that administrators change at run time.)

Sources in order of precedence: the command line, the environment as `FORGEFRONT_NAME`, the TOML file, the default. `FORGEFRONT_CONFIG`
names the file; by default it is `forgefront.toml` in the data folder, if that exists.
"""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from forgefront.settings.bucket_settings import BucketSettings
from forgefront.settings.config_error import ConfigError as ConfigError
from forgefront.settings.config_file import DEFAULT_DATA, PREFIX, describe_unknown_variables, format_problems, read_file
from forgefront.settings.git_settings import GitSettings
from forgefront.settings.sign_in_settings import SignInSettings
from graph.jobs.change_retention import DEFAULT_DAYS, DEFAULT_ROWS, ChangeRetention
from graph.rules.ci.config_versions import parse_version

MAX_OPERATION_COST = 100
"""Points. Maximum cost of one operation, from the maximum number of rows in `graph/operations/cost.py`."""
USUAL_URL_PATTERN = re.compile(
    r"postgres(?:ql)?(?:\+\w+)?://(?:[^\s:@/?]+(?::[^\s:@/?]*)?@)?[\w.-]*(?::[0-9]{1,5})?/[\w.-]+(?:\?[\w=&.,%/-]*)?"
    r"|sqlite(?:\+\w+)?:///[\w./ -]*[\w-]"
)
"""Database URLs that are certainly valid."""
ORIGIN_PATTERN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?")
"""Origins as browsers send them (https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin)."""


class Config(BucketSettings, GitSettings, SignInSettings):
    """The configuration. Use `Config.load`, whose errors are written for people."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    data: Path = Field(default=DEFAULT_DATA, description="The folder of all data: database, repositories, key.")
    host: str = Field(default="127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="The port to listen on; 0 picks a free one.")
    external_url: str = Field(default="", description="The address that clients use, for links; by default from host and port.")
    ssh_port: int | None = Field(
        default=None, ge=0, le=65535, description="The port of git over SSH; 0 picks a free one. Without it, SSH is disabled."
    )
    ssh_host: str = Field(default="", description="The address to listen on for SSH; by default host.")
    ssh_external_url: str = Field(
        default="",
        description="The address that clients clone from over SSH, such as ssh://git@HOST:PORT; by default from external_url and ssh_port.",
    )
    ssh_host_keys: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Files with the private keys of this host; by default ssh_host_ed25519_key in the data folder, which is generated.",
    )
    database_url: str = Field(
        default="", repr=False, description="sqlite:///FILE or postgresql://…; by default forgefront.db in the data folder."
    )
    database_connections: int = Field(
        default=10, ge=1, le=200, description="Connections that each process keeps open for reading, and as many for writing."
    )
    secret_key: SecretStr | None = Field(
        default=None, description="Encrypts the tokens stored in the database; by default secret.key in the data folder."
    )
    v3_profile: Literal["document", "gitlab-8.5"] = Field(
        default="document", description="document: follows the document exactly. gitlab-8.5: serves clients of that version."
    )
    v3_old_ids: Path | None = Field(
        default=None, description="File with the old and new ids of an imported instance; /api/v3 takes the old ones in paths."
    )
    avatar_url_template: str | None = Field(
        default=None, description="Template of users' avatar_url, such as https://…/{email_md5}; without it, avatar_url is null."
    )
    hooks_allow_local: bool = Field(default=False, description="Whether hooks may call private and loopback addresses.")
    log_format: Literal["json", "text"] = Field(default="json", description="Format of log lines on standard error.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Minimum level of log lines.")
    metrics: bool = Field(default=True, description="Whether /-/metrics is served. It requires no credential.")
    workers: int = Field(default=1, ge=1, le=64, description="Number of server processes; more than one requires PostgreSQL.")
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("*",),
        description="Origins whose pages may call the APIs, such as https://app.example.com, separated by commas. *: all origins."
        " none: no other origin.",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-For is trusted."
    )
    largest_artifact: int = Field(default=5120, ge=1, le=1_000_000, description="Maximum size of an artifact of a build, in MB.")
    largest_trace: int = Field(default=64, ge=1, le=1_000_000, description="Maximum stored size of a build's trace, in MB.")
    largest_file: int = Field(
        default=10, ge=1, le=1_000, description="Maximum size of a file that the APIs commit to a repository or show as base64, in MB."
    )
    build_lease: int = Field(
        default=60, ge=5, le=3600, description="Seconds without contact from a runner after which its builds return to the queue."
    )
    ci_file_version: str = Field(
        default="", description="Version of GitLab, such as 8.17, whose rules hold for CI files that name none. Empty: the newest."
    )
    build_timeout: int = Field(default=3600, ge=10, le=604_800, description="Maximum duration of a build, in seconds.")
    streams: int = Field(
        default=10_000, ge=0, le=1_000_000, description="Maximum number of open subscriptions and WebSockets in each server process."
    )
    streams_per_viewer: int = Field(default=200, ge=1, le=1_000_000, description="Maximum number of these for one user, across all tokens.")
    rate_limit: int = Field(
        default=1_000_000,
        ge=0,
        description="Points that a viewer may spend on GraphQL in an hour: one for each 100 rows, and at"
        " least one for each operation. The default stops runaway loops; a public service needs a lower limit. 0 disables"
        " the limit.",
    )
    changes_days: int = Field(
        default=DEFAULT_DAYS,
        ge=1,
        le=100_000,
        description="Days for which subscriptions can resume after an event. Older changes are deleted.",
    )
    changes_rows: int = Field(
        default=DEFAULT_ROWS,
        ge=1_000,
        le=1_000_000_000,
        description="Number of the newest changes after which a subscription can resume. Older ones are deleted.",
    )
    planner: bool = Field(default=True, description="Whether frequent queries are compiled into plans; the results are the same without.")
    analytics: bool = Field(
        default=True, description="Whether statistics are computed from a columnar copy of the builds; the results are the same without."
    )
    warm_up: bool = Field(
        default=True,
        description="Whether each server process runs the queries of trusted documents and of v3 once after the start, so that their first"
        " requests are fast.",
    )
    documents: Path | None = Field(
        default=None, description="A folder of .graphql files, or a manifest, of trusted documents that clients request by id."
    )
    documents_mode: Literal["off", "prefer", "only"] = Field(
        default="prefer",
        description="prefer: trusted documents and other operations. only: trusted documents only. off: no trusted documents.",
    )
    header_timeout: float = Field(default=20, gt=0, le=30, description="Seconds in which the header of a request must be complete.")
    body_timeout: float = Field(
        default=30, gt=0, le=30, description="Seconds without a byte in either direction after which a connection is closed."
    )
    keep_alive_timeout: float = Field(default=30, gt=0, le=75, description="Seconds after which an idle connection is closed.")
    stop_timeout: int = Field(default=10, ge=1, le=10, description="Seconds that running requests have to end at shutdown.")

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Reads the configuration. An override of None counts as not set. Raises ConfigError, which never contains a value."""
        overrides = {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise ConfigError(format_problems(error, overrides)) from None

    @classmethod
    def describe_unknown_variables(cls) -> list[str]:
        """A line for each FORGEFRONT_ variable of the environment that is no setting, which is often a misspelled one."""
        return describe_unknown_variables(cls.model_fields)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        overrides = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        return init_settings, env_settings, InitSettingsSource(settings_cls, read_file(overrides, cls.model_fields))

    @field_validator("data")
    @classmethod
    def _make_data_absolute(cls, data: Path) -> Path:
        return data.expanduser().absolute()

    @field_validator("documents", "v3_old_ids")
    @classmethod
    def _make_file_absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None

    @field_validator("rate_limit")
    @classmethod
    def _validate_rate_limit(cls, points: int) -> int:
        if 0 < points < MAX_OPERATION_COST:
            raise ValueError(f"must be 0, which disables the limit, or at least {MAX_OPERATION_COST}, the maximum cost of one operation")
        return points

    @field_validator("ci_file_version")
    @classmethod
    def _validate_ci_file_version(cls, version: str) -> str:
        if version.strip():
            parse_version(version)
        return version.strip()

    @field_validator("external_url")
    @classmethod
    def _validate_external_url(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address such as https://forge.example.com")
        if parts.query or parts.fragment or parts.username is not None or parts.password is not None:
            raise ValueError("must have no query, fragment, user name or password")
        if not url.isascii() or any(character <= " " or character in ',;<>"' for character in url):
            raise ValueError("must be ASCII, without spaces, commas, semicolons, quotes or angle brackets")
        return url.rstrip("/")

    @field_validator("ssh_external_url")
    @classmethod
    def _validate_ssh_external_url(cls, url: str) -> str:
        if not url:
            return url
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme == "ssh" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid or parts.password is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("must be an address such as ssh://git@forge.example.com:2222")
        if not url.isascii() or any(character <= " " or character in ",;<>\"'" for character in url):
            raise ValueError("must be ASCII, without spaces, commas, semicolons, quotes or angle brackets")
        return url

    @field_validator("ssh_host_keys", mode="before")
    @classmethod
    def _parse_ssh_host_keys(cls, value: Any) -> Any:
        entries = [entry.strip() for entry in value.split(",")] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str | Path) and str(entry) for entry in entries):
            raise ValueError("must be file names, separated by commas")
        return tuple(Path(entry).expanduser().absolute() for entry in entries)

    @field_validator("database_url")
    @classmethod
    def _validate_database_url(cls, raw_url: str) -> str:
        # Loading SQLAlchemy takes as long as all else that the server needs before it listens.
        if not raw_url or USUAL_URL_PATTERN.fullmatch(raw_url):
            return raw_url
        from storage.database.engine import driver_url

        try:
            url = driver_url(raw_url)
        except Exception:
            # SQLAlchemy's own message repeats the URL, which may contain a password.
            raise ValueError("must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME") from None
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            raise ValueError("must name a file: a database in memory is lost at exit and differs for each connection")
        return raw_url

    @field_validator("secret_key")
    @classmethod
    def _validate_secret_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None:
            from storage.secrets import InvalidKey, load_key

            try:
                load_key(DEFAULT_DATA, key.get_secret_value())
            except InvalidKey:
                raise ValueError("must be 32 bytes in base64, as `openssl rand -base64 32` prints them") from None
        return key

    @field_validator("avatar_url_template")
    @classmethod
    def _validate_avatar_url_template(cls, template: str | None) -> str | None:
        if template is not None and not template.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        try:
            (template or "").format(email_md5="", username="", id=1)
        except (LookupError, ValueError, AttributeError):
            raise ValueError("may only have the placeholders {email_md5}, {username} and {id}") from None
        return template

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _parse_cors_origins(cls, value: Any) -> Any:
        entries = [entry.strip() for entry in value.split(",")] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple):
            raise ValueError("must be a list of origins")
        if list(entries) == ["none"]:
            return ()
        if list(entries) != ["*"] and not all(isinstance(entry, str) and ORIGIN_PATTERN.fullmatch(entry) for entry in entries):
            raise ValueError("must be *, none, or origins such as https://app.example.com (no path, no slash), separated by commas")
        return tuple(entries)

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _parse_trusted_proxies(cls, value: Any) -> Any:
        entries = [entry.strip() for entry in value.split(",")] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple):
            raise ValueError("must be a list of addresses or networks")
        for entry in entries:
            try:
                ip_network(str(entry))
            except ValueError:
                raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas") from None
        return tuple(entries)

    @model_validator(mode="after")
    def _set_defaults(self) -> Self:
        if not self.database_url:
            # The model is frozen for all other code.
            object.__setattr__(self, "database_url", f"sqlite:///{self.data / 'forgefront.db'}")
        if self.workers > 1 and self.uses_sqlite:
            raise ValueError(
                f"workers: {self.workers} processes need PostgreSQL, since on SQLite the writers of one process queue for each other;"
                " set database_url, or leave workers at 1"
            )
        return self

    def load_secret_key(self) -> bytes:
        """The secret key of the instance; without one in the configuration that of the data folder, which is created. As `load_key`.

        Raises InvalidKey too if a rotation of the key was interrupted, since the database may have either key.
        """
        from storage.secrets import NEW_KEY_FILE, InvalidKey, load_key

        if self.secret_key is None and (self.data / NEW_KEY_FILE).exists():
            raise InvalidKey(
                f"{self.data} contains a rotation of the secret key that was interrupted;"
                " run `forgefront admin secret-key rotate` again, which completes it"
            )
        return load_key(self.data, self.secret_key.get_secret_value() if self.secret_key else None)

    @property
    def uses_sqlite(self) -> bool:
        # Not read from SQLAlchemy, which the program that only waits for its workers need not load.
        return self.database_url.partition(":")[0].partition("+")[0] == "sqlite"

    @property
    def repositories(self) -> Path:
        """The folder of the bare repositories."""
        return self.data / "repositories"

    @property
    def change_retention(self) -> ChangeRetention:
        return ChangeRetention(self.changes_days, self.changes_rows)

    @property
    def analytics_folder(self) -> Path:
        """The folder of the columnar copy, which can be deleted at any time."""
        return self.data / "analytics"

    @property
    def uploads(self) -> Path:
        """The folder of the files attached to notes."""
        return self.data / "uploads"

    @property
    def artifacts(self) -> Path:
        """The folder of artifacts and traces, if they are not in a bucket."""
        return self.data / "artifacts"

    @property
    def ssh_prefix(self) -> str:
        """Prefix of the SSH addresses of repositories, up to `NAMESPACE/PROJECT.git`; empty if SSH is not served.

        `ssh://git@forge.example.com:2222/`, and at SSH's own port 22 the short form `git@forge.example.com:`.
        """
        if self.ssh_port is None and not self.ssh_external_url:
            return ""
        parts = urlsplit(self.ssh_external_url or f"ssh://git@{urlsplit(self.base_url).netloc.rpartition('@')[2]}")
        port = (parts.port or 22) if self.ssh_external_url else self.ssh_port
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        user = parts.username or "git"
        return f"{user}@{host}:" if port == 22 else f"ssh://{user}@{host}:{port}/"

    @property
    def base_url(self) -> str:
        """The base of all links, without a trailing slash."""
        if self.external_url:
            return self.external_url
        host = "localhost" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 (a comparison, not a bind)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

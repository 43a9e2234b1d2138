"""The parts behind the endpoints: database, repositories, secrets and the graph; how they start and stop.

The service adds endpoints; a command of the command line uses the backend alone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from forgefront.buckets.bucket_owner import claim_buckets
from forgefront.config import Config, ConfigError
from forgefront.data_folder.data_folder_claim import UNFINISHED_DEMO, UNFINISHED_RESTORE, is_claimed, is_unfinished
from forgefront.data_folder.data_folder_lock import DataFolderLock
from forgefront.data_folder.file_permissions import restrict_permissions
from forgefront.server.host_registry import read_identity
from graph.context import Services
from graph.events.outbox import Outbox
from graph.jobs.build_analytics import BuildAnalytics
from graph.live.broadcaster import ChangeBroadcaster
from graph.operations.execution import Graph
from graph.operations.rate_limits import RateLimiter
from graph.rules.ci.config_versions import parse_version
from graph.rules.git import ref_adoption
from storage import integrity, migrations
from storage.database.clock import now
from storage.database.engine import Database
from storage.git.importing.repository_import import ProgressCallback
from storage.git.repositories import Repositories
from storage.git.repository_cache import RepositoryCache
from storage.objects.bucket_uploads import BucketUploadStore
from storage.objects.object_store import ObjectStore, open_store
from storage.objects.uploads import UploadStore
from storage.secrets import KEY_FILE, InvalidKey, Passwords, TokenCipher

CLOSE_TIMEOUT_SECONDS = 1.0
"""Time limit for closing each part."""


class Backend:
    """The graph over one data folder.

    Construction touches the folder, but not the database, and makes the whole process create files with access for its user only. Raises
    ConfigError.
    """

    def __init__(self, config: Config, *, progress: ProgressCallback | None = None, clock: Callable[[], datetime] = now) -> None:
        self.config = config
        _require_finished(config)
        restrict_permissions(config)
        try:
            config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            config.repositories.mkdir(mode=0o700, exist_ok=True)
            key = config.load_secret_key()
        except OSError as error:
            raise ConfigError([f"the data folder {config.data} cannot be used: {error.strerror or error}"]) from error
        except InvalidKey as error:
            raise ConfigError([str(error)]) from error
        self.key = key
        self.database = Database(config.database_url, pool_size=config.database_connections)
        try:
            self.repositories = open_repositories(config, self.database)
        except ValueError as error:
            raise ConfigError([f"repositories_url: {error}"]) from error
        try:
            self.objects = open_store(config.artifacts_url, config.artifacts, config.s3_settings)
            self.uploads = open_uploads(config)
        except ValueError as error:
            raise ConfigError([f"artifacts_url or uploads_url: {error}"]) from error
        try:
            self.directory = config.open_directory()
        except ValueError as error:
            raise ConfigError([f"ldap_ca_file: {error}"]) from error
        self.openid_provider = config.open_openid_provider()
        self.passwords = Passwords()
        self.graph = Graph(
            Services(
                database=self.database,
                repositories=self.repositories,
                passwords=self.passwords,
                cipher=TokenCipher(key),
                uploads=self.uploads,
                objects=self.objects,
                external_url=config.base_url,
                ssh_prefix=config.ssh_prefix,
                avatar_url_template=config.avatar_url_template,
                max_artifact_bytes=config.largest_artifact * 2**20,
                max_trace_bytes=config.largest_trace * 2**20,
                max_file_bytes=config.largest_file * 2**20,
                build_lease=config.build_lease,
                ci_file_version=parse_version(config.ci_file_version) if config.ci_file_version else None,
                build_timeout=config.build_timeout,
                clock=clock,
                progress=progress,
                directory=self.directory,
                openid_provider=self.openid_provider,
                broadcaster=ChangeBroadcaster(max_streams=config.streams, max_streams_per_viewer=config.streams_per_viewer),
                rate_limiter=RateLimiter(config.rate_limit),
                build_analytics=BuildAnalytics(self.database, config.analytics_folder) if config.analytics else None,
                outbox=Outbox(allow_local=config.hooks_allow_local),
            ),
            planner=config.planner,
        )
        self._folder_lock = DataFolderLock(config.data)
        self._log = structlog.get_logger()

    async def start(self, *, may_migrate: bool = True) -> None:
        """Migrates the database and cleans up after a process that was killed. Without `may_migrate` only an empty database is migrated.

        Raises ConfigError, ForeignBucket, ObjectStoreUnavailable, and what the migrations raise.
        """
        await asyncio.to_thread(self._folder_lock.acquire, self._remove_leftovers)
        # Another process may have begun to fill the folder before it was locked.
        _require_finished(self.config)
        try:
            host = await asyncio.to_thread(read_identity, self.config)
            applied = await asyncio.to_thread(migrations.upgrade, self.config.database_url, host=host, only_empty=not may_migrate)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if applied:
            self._log.info("migrated", revisions=applied)
        await self._require_matching_key()
        await claim_buckets(self.config, self.database, self.stores)
        await ref_adoption.adopt_all(self.graph.services)

    async def _require_matching_key(self) -> None:
        """Raises ConfigError if the secrets in the database have another key: what this process writes could not be read with that one."""
        # The command that fills a folder says itself what is wrong with a database that is not empty.
        if is_claimed(self.config.data):
            return
        async with self.database.read_session() as session:
            if await integrity.matches_sealed_tokens(session, self.graph.services.cipher):
                return
        source = "FORGEFRONT_SECRET_KEY" if self.config.secret_key is not None else self.config.data / KEY_FILE
        raise ConfigError(
            [
                f"the secrets in the database were encrypted with another key than that of {source}. Use the key of the instance, which its"
                " other hosts have, or a backup of it; after a rotation, the new one. If it is lost: `forgefront admin secret-key forget`"
            ]
        )

    @property
    def stores(self) -> dict[str, ObjectStore]:
        """The object stores, by what they store."""
        return list_stores(self.objects, self.repositories, self.uploads)

    def _remove_leftovers(self) -> None:
        self.repositories.sweep()
        self.uploads.sweep()
        self.objects.sweep()

    async def stop(self) -> None:
        """Closes all resources. Those that do not close in time end with the process."""
        await self._close_in_time("outbox", self.graph.services.outbox.close())
        if self.graph.services.build_analytics is not None:
            await self._close_in_time("analytics", self.graph.services.build_analytics.close())
        for name, store in self.stores.items():
            await self._close_in_time(name, store.close())
        await self._close_in_time("database", self.database.close())
        await self._close_in_time("repositories", asyncio.to_thread(self.repositories.close))
        await self._close_in_time("passwords", asyncio.to_thread(self.passwords.close))
        if self.directory is not None:
            await self._close_in_time("directory", asyncio.to_thread(self.directory.close))
        if self.openid_provider is not None:
            await self._close_in_time("OpenID provider", self.openid_provider.close())
        self._folder_lock.release()

    async def _close_in_time(self, name: str, closing: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(closing, CLOSE_TIMEOUT_SECONDS)
        except Exception as error:
            self._log.warning("closing failed", part=name, error=type(error).__name__)


def _require_finished(config: Config) -> None:
    """Raises ConfigError if the folder was left half filled, since the command that goes on with it removes what it finds."""
    if is_unfinished(config.data, UNFINISHED_RESTORE):
        raise ConfigError([f"{config.data} contains a restoration that was interrupted; run `forgefront restore` again, which starts over"])
    if is_unfinished(config.data) and not is_claimed(config.data):
        raise ConfigError(
            [
                f"{config.data} contains a demo whose creation was interrupted; run `forgefront demo` again, which starts over, or delete"
                f" {config.data / UNFINISHED_DEMO} to use what is there"
            ]
        )


def list_stores(objects: ObjectStore, repositories: Repositories, uploads: UploadStore) -> dict[str, ObjectStore]:
    """The object stores, by what they store; repositories and uploads in folders have none."""
    stores = {"artifacts": objects}
    if isinstance(repositories, RepositoryCache):
        stores["repositories"] = repositories.store
    if isinstance(uploads, BucketUploadStore):
        stores["uploads"] = uploads.objects
    return stores


def open_uploads(config: Config) -> UploadStore:
    """The uploads of the configuration. Raises ValueError for an invalid URL."""
    if not config.uploads_url:
        return UploadStore(config.uploads)
    return BucketUploadStore(config.uploads, open_store(config.uploads_url, config.uploads, config.s3_settings))


def open_repositories(config: Config, database: Database) -> Repositories:
    """The repositories of the configuration. Raises ValueError for an invalid URL."""
    if not config.repositories_url:
        return Repositories(config.repositories)
    store = open_store(config.repositories_url, config.repositories, config.s3_settings)
    return RepositoryCache(config.repositories, database, store, max_bytes=config.repository_cache * 2**20)

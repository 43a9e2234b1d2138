"""Database, repositories, uploads and objects of a configuration, for commands that work on the data as such, without a started backend."""

import contextlib
from collections.abc import AsyncIterator

from forgefront.backend import list_stores, open_repositories, open_uploads
from forgefront.config import Config, ConfigError
from storage.database.engine import Database
from storage.dump.instance_dump import InstanceData
from storage.objects.object_store import open_store


@contextlib.asynccontextmanager
async def open_stored_data(config: Config) -> AsyncIterator[InstanceData]:
    """Opens the data of an instance, and closes them at the end. Creates nothing. Raises ConfigError."""
    # Statements of commands may read or change all rows of a table.
    database = Database(config.database_url, statement_seconds=None)
    try:
        repositories, uploads = open_repositories(config, database), open_uploads(config)
        objects = open_store(config.artifacts_url, config.artifacts, config.s3_settings)
    except ValueError as error:
        raise ConfigError([f"repositories_url, uploads_url or artifacts_url: {error}"]) from error
    stores = list_stores(objects, repositories, uploads)
    buckets = {name: store for name, store in stores.items() if store.is_remote}
    try:
        yield InstanceData(database, repositories, uploads, objects, buckets)
    finally:
        repositories.close()
        for store in stores.values():
            await store.close()
        await database.close()

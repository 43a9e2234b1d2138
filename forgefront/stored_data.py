"""Database, repositories, uploads and objects of a configuration, for commands that work on the data as such, without a started backend."""

import contextlib
from collections.abc import AsyncIterator

from forgefront.config import Config, ConfigError
from storage.database.engine import Database
from storage.dump.instance_dump import InstanceData
from storage.git.repositories import Repositories
from storage.objects.object_store import open_store
from storage.objects.uploads import UploadStore


@contextlib.asynccontextmanager
async def open_stored_data(config: Config) -> AsyncIterator[InstanceData]:
    """Opens the data of an instance, and closes them at the end. Creates nothing. Raises ConfigError."""
    try:
        objects = open_store(config.artifacts_url, config.artifacts, config.s3_settings)
    except ValueError as error:
        raise ConfigError([f"artifacts_url: {error}"]) from error
    data = InstanceData(Database(config.database_url), Repositories(config.repositories), UploadStore(config.uploads), objects)
    try:
        yield data
    finally:
        data.repositories.close()
        await data.objects.close()
        await data.database.close()

"""The old ids of an imported instance that this service takes in paths of v3."""

from forgefront.config import Config, ConfigError
from forgefront.settings.config_file import PREFIX
from rest_v3.old_ids import InvalidOldIds, OldIds


def read_old_ids(config: Config) -> OldIds | None:
    """The table of the configuration, if it has one. Raises ConfigError."""
    if config.v3_old_ids is None:
        return None
    try:
        return OldIds.read(config.v3_old_ids)
    except OSError as error:
        raise ConfigError([f"{PREFIX}V3_OLD_IDS: {config.v3_old_ids} cannot be read: {error.strerror or error}"]) from None
    except InvalidOldIds as error:
        raise ConfigError([f"{PREFIX}V3_OLD_IDS: {error}"]) from None

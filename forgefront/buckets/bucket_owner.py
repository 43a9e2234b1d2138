"""Whose the buckets are: each prefix has an object with the identity of its instance.

An instance deletes objects that its database does not know, so two on one prefix would destroy each other's data. The first start writes
the object, by a write that fails if it exists; every later start compares.
"""

from collections.abc import Mapping

from forgefront.config import Config
from storage.database.engine import Database
from storage.objects.object_store import OWNER_NAME, ObjectStore, new_key
from storage.tables import instance_identity


class ForeignBucket(Exception):
    """A bucket belongs to another instance; the message says which and what to do."""


async def claim_buckets(config: Config, database: Database, stores: Mapping[str, ObjectStore]) -> None:
    """Makes this instance the owner of its buckets. Raises ForeignBucket, ObjectStoreUnavailable."""
    buckets = {name: store for name, store in stores.items() if store.is_remote}
    if buckets:
        identity = await instance_identity.find_or_create(database, new_key())
        for name, store in buckets.items():
            if (owner := await store.claim(identity)) != identity:
                raise ForeignBucket(f"{_describe(config, name, owner, identity)}. {remedy(name)}")


async def find_foreign(config: Config, database: Database, name: str, store: ObjectStore) -> str | None:
    """The problem if the bucket has another owner. Raises ObjectStoreUnavailable."""
    owner, identity = await store.read_owner(), await instance_identity.find(database)
    return None if owner in (None, identity) else _describe(config, name, owner, identity)


def remedy(name: str) -> str:
    """What to do about the bucket of another instance."""
    return (
        f"Set FORGEFRONT_{name.upper()}_URL to a prefix that nobody else uses. If no other instance uses this one, as after the database"
        f" was created again, delete the object {OWNER_NAME} below it and start again"
    )


def _describe(config: Config, name: str, owner: str | None, identity: str | None) -> str:
    return f"{getattr(config, f'{name}_url')} belongs to another instance: its owner is {owner}, this one is {identity}"

"""The caches of the process, for the layers that do not know storage."""

from storage.caches import DECLARED as DECLARED
from storage.caches import CacheBounds as CacheBounds
from storage.caches import CacheUsage as CacheUsage
from storage.caches import LruCache as LruCache
from storage.caches import measure as measure
from storage.caches import usage as usage

"""The caches of the process, for layers that do not import storage."""

from storage.caches import BOUNDS_BY_NAME as BOUNDS_BY_NAME
from storage.caches import CacheBounds as CacheBounds
from storage.caches import CacheUsage as CacheUsage
from storage.caches import LruCache as LruCache
from storage.caches import current_usage as current_usage
from storage.caches import register_usage as register_usage

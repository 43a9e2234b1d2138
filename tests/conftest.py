"""The fixtures of the suite live in modules of their own; this names them."""

import gc

pytest_plugins = ["tests.databases", "tests.statements", "tests.make", "tests.forge", "tests.world"]

# What is imported stays, and is half a million objects: looking through it again and again is a quarter of the suite's time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()

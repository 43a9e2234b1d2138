"""Loads the fixtures of the suite, which are defined in modules of their own."""

import argparse
import asyncio
import functools
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import pytest_asyncio.plugin
import structlog

from tests.support import shared_certificates
from tests.support.file_order import order_files
from tests.support.process_folders import run_folder


def distributes_tests() -> bool:
    """Whether this process runs no test, and starts others that do (pytest-xdist). They wait for it, for as long as it imports."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-n", "--numprocesses", default="0")
    parser.add_argument("--collect-only", "--co", action="store_true")
    given, _ = parser.parse_known_args(sys.argv[1:])
    return "PYTEST_XDIST_WORKER" not in os.environ and given.numprocesses != "0" and not given.collect_only


REPORTS = ["tests.support.reliability_promises", "tests.support.database.database_report"]
"""What the process that distributes the tests needs too."""
FIXTURES = [
    "tests.support.database.postgres_connections",
    "tests.support.database.databases",
    "tests.support.database.database_selection",
    "tests.support.database.statements",
    "tests.support.failed_plans",
    "tests.make",
    "tests.support.api_clients",
    "tests.support.servers.s3_server",
    "tests.support.servers.bucket",
    "tests.support.servers.hosts",
    "tests.support.scenario",
    "tests.support.imports.dumps",
]
pytest_plugins = [*REPORTS, *([] if distributes_tests() else FIXTURES)]

# What is imported and collected stays, and is a million objects: looking through it again and again is a quarter of the suite's time.
gc.disable()
gc.set_threshold(50_000, 5, 400)


MIN_TESTS_FOR_HUGE_PAGES = 1_000
"""With fewer, moving the heap to huge pages takes longer than it saves."""
PLANNER_VARIABLE = "FORGEFRONT_PLANNER"
"""`off` runs the whole suite without plans, as it does the service; tests of the plans themselves ask for them."""
PLAN_AFTER_VARIABLE = "FORGEFRONT_TEST_OFTEN"
"""At which of its runs a query is planned: 1 plans everything, 2 has graphql-core answer each text once."""


def pytest_configure() -> None:
    # The processes that run the tests find it in their environment.
    run_folder()
    if distributes_tests():
        return
    from graph.operations.execution import Graph
    from graph.planner import cache as plan_cache

    # Servers of tests end before it pays; tests/graph/operations/test_warm_up.py runs it.
    os.environ.setdefault("FORGEFRONT_WARM_UP", "false")
    settings: Any = Graph.__init__
    if os.environ.get(PLANNER_VARIABLE) == "off":
        settings.__kwdefaults__["planner"] = False
    plan_cache.MIN_RUNS_TO_PLAN = int(os.environ.get(PLAN_AFTER_VARIABLE, plan_cache.MIN_RUNS_TO_PLAN))

    @functools.wraps(plan_cache.log_compile_error)
    def raise_compile_error(*_: Any) -> None:
        raise

    plan_cache.log_compile_error = raise_compile_error
    # With rich installed, a logged traceback takes seconds.
    structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback
    share_operations()
    make_password_hashing_fast()
    shared_certificates.install()
    make_items_once()


def make_items_once() -> None:
    """Turns an item into one that runs in the event loop; pytest-asyncio makes a second one of each, which takes a second per process."""

    def convert(cls: type[pytest.Function], function: pytest.Function) -> pytest.Function:
        function.__class__ = cls
        return function

    item_class: Any = pytest_asyncio.plugin.Coroutine
    item_class._from_function = classmethod(convert)


def make_password_hashing_fast() -> None:
    """Applications that tests create hash passwords in microseconds; test_secrets.py tests the real cost."""
    from storage import secrets
    from tests.make import FAST_PASSWORD_HASHER

    vars(secrets)["PasswordHasher"] = lambda: FAST_PASSWORD_HASHER


def share_operations() -> None:
    """Reads the operations of v3 and of runners once a run: that is most of what creating an application takes."""
    from rest_v3.operations import OperationRegistry

    OperationRegistry.read = staticmethod(cache(OperationRegistry.read))  # type: ignore[method-assign]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    file_of = {item: item.nodeid.partition("::")[0] for item in items}
    position = {file: index for index, file in enumerate(order_files(Counter(file_of.values())))}
    items.sort(key=lambda item: position[file_of[item]])


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()
    if len(session.items) >= MIN_TESTS_FOR_HUGE_PAGES:
        # What was imported and collected is used by every test.
        from forgefront.server.huge_pages import use_huge_pages

        use_huge_pages()


@pytest.fixture(scope="module", autouse=True)
def freeze_earlier_modules() -> None:
    """A test that collects garbage looks through what its own module left."""
    gc.freeze()


@pytest.fixture(scope="session")
async def loop_of_tests() -> asyncio.AbstractEventLoop:
    """The event loop that the tests of a process share, so that they can share connections.

    They are those of tests/support/database/postgres_connections.py.
    """
    return asyncio.get_running_loop()


@pytest.fixture(autouse=True)
def cancel_tasks(loop_of_tests: asyncio.AbstractEventLoop) -> Iterator[None]:
    """What a test leaves running ends with the test."""
    yield
    if tasks := asyncio.all_tasks(loop_of_tests):
        for task in tasks:
            task.cancel()
        loop_of_tests.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


@pytest.fixture(autouse=True)
def reset_logging() -> Iterator[None]:
    """What a command set up writes to a stream that is closed with its test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()

"""The figures of a run, told at its end."""

from collections.abc import Callable

import pytest

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`figure("p99 40 ms")` has the end of the run say it, with the name of the test."""
    told = request.config.stash.setdefault(FIGURES, [])

    def tell(text: str) -> None:
        told.append(f"{request.node.name}: {text}")

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if told := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in told:
            terminalreporter.write_line(line)

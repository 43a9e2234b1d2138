"""`scripts/bench COMMAND`: measures the service; each command has a --help of its own."""

import argparse
import sys
from functools import partial

from benchmarks.suites import (
    builds,
    claims,
    growth,
    imports,
    memory,
    pages,
    processes,
    repository_reads,
    shadow,
    starts,
    statistics,
    table,
    transfers,
    writes,
)

COMMANDS = {
    "table": (partial(table.main, "table"), "the service against handwritten SQL and its peers, on both databases"),
    "join": (partial(table.main, "join"), "the join of the table on PostgreSQL"),
    "writes": (writes.main, "creating and changing issues, lists of the caller, and a mixed load against handwritten SQL"),
    "git": (transfers.main, "clone, fetch and push against git http-backend"),
    "repository": (repository_reads.main, "commits, folders, files, diffs and comparisons against pygit2 alone"),
    "runners": (claims.main, "runners that wait for builds and claim them"),
    "builds": (builds.main, "from the push of a CI file to the start of its build, with many pending builds"),
    "pages": (pages.main, "a far page of a list against the first one"),
    "growth": (growth.main, "the ratios of the table on two sizes of the data set"),
    "processes": (processes.main, "several server processes against one"),
    "import": (imports.main, "an import through REST v3, and a second one after one issue in a hundred has changed"),
    "shadow": (shadow.main, "the time that the shadow proxy adds to a request"),
    "start": (starts.main, "the start of the service, and first requests after it"),
    "statistics": (statistics.main, "statistics of builds against DuckDB itself and SQL on the row store"),
    "memory": (memory.main, "resident memory under load and after many distinct queries"),
}


def main() -> None:
    listed = "\n".join(f"  {name:<11}{purpose}" for name, (_, purpose) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        usage="scripts/bench COMMAND [--help] ...",
        description=f"commands:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, help=argparse.SUPPRESS)
    run, _ = COMMANDS[parser.parse_args(sys.argv[1:2]).command]
    run(sys.argv[2:])


if __name__ == "__main__":
    main()

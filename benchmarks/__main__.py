"""`scripts/bench COMMAND`: measures the service; each command has a --help of its own."""

import argparse
import sys
from importlib import import_module

COMMANDS = {
    "table": ("table", ("table",), "the service against handwritten SQL and its peers, on both databases"),
    "join": ("table", ("join",), "the join of the table on PostgreSQL"),
    "writes": ("writes", (), "creating and changing issues, lists of the caller, and a mixed load against handwritten SQL"),
    "git": ("transfers", (), "clone, fetch and push against git http-backend"),
    "repository": ("repository_reads", (), "commits, folders, files, diffs and comparisons against pygit2 alone"),
    "runners": ("claims", (), "runners that wait for builds and claim them"),
    "builds": ("builds", (), "from the push of a CI file to the start of its build, with many pending builds"),
    "pages": ("pages", (), "a far page of a list against the first one"),
    "growth": ("growth", (), "the ratios of the table on two sizes of the data set"),
    "processes": ("processes", (), "several server processes against one"),
    "import": ("imports", (), "an import through REST v3, and a second one after one issue in a hundred has changed"),
    "shadow": ("shadow", (), "the time that the shadow proxy adds to a request"),
    "start": ("starts", (), "the start of the service, and first requests after it"),
    "statistics": ("statistics", (), "statistics of builds against DuckDB itself and SQL on the row store"),
    "memory": ("memory", (), "resident memory under load and after many distinct queries"),
}
"""The module of each command in `benchmarks.suites`, the first arguments of its `main`, and what it measures. Modules are imported when
they run, so that --help needs no environment."""


def main() -> None:
    listed = "\n".join(f"  {name:<11}{purpose}" for name, (_, _, purpose) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        usage="scripts/bench COMMAND [--help] ...",
        description=f"commands:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, help=argparse.SUPPRESS)
    module, arguments, _ = COMMANDS[parser.parse_args(sys.argv[1:2]).command]
    import_module(f"benchmarks.suites.{module}").main(*arguments, sys.argv[2:])


if __name__ == "__main__":
    main()

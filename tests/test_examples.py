"""Examples of README and docs: commands have these options, operations are valid, settings have these defaults."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from graphql import parse, validate

from forgefront import cli
from forgefront.config import Config
from graph.schema import schema

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"""\s*(?:ExecStart=|sudo -u forgefront |cd \S+ && )?(?:[A-Z0-9_]+=(?:"[^"]*"|'[^']*'|\S*) +)*(?:\S*/)?forgefront +(?!→)([^|\s][^|]*)"""
)
SENT_QUERY = re.compile(r"-d '(\{\"query\".*?\})'$", re.MULTILINE)
INSTANCE_FILES = re.compile(r"`DATA/[\w.]+`")
DEFAULTS = {
    "": ("none", "off", "host and port", "SQLite in the data folder", "that of host", "external URL and SSH port", "`AWS_*`", "newest"),
    "false": ("`false`",),
    "true": ("`true`",),
}
"""What the table says instead of a default that is empty, or a flag; others are written as they are."""
COMPUTED_DEFAULTS = ("the DN", "the system's")


def blocks_of(page: str, *languages: str) -> Iterator[str]:
    for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language in languages:
            yield text


def commands_of(page: str) -> Iterator[list[str]]:
    """The arguments of each `forgefront` that stands in an example of the shell or in the text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    inline = re.findall(r"`([^`\n]*\bforgefront [^`\n]+)`", BLOCK.sub("", text))
    for line in [*"\n".join(blocks_of(page, "sh", "ini")).replace("\\\n", " ").splitlines(), *inline]:
        if found := COMMAND.match(line):
            yield shlex.split(found[1], comments=True)


def find_options(arguments: list[str]) -> tuple[list[str], set[str]]:
    """The names of the command that the arguments run, and the options of it and its groups."""
    command: Any = typer.main.get_command(cli.main)
    names, options = list[str](), {"--help", "--version"}
    for argument in arguments:
        if argument in getattr(command, "commands", ()):
            names.append(argument)
            command = command.commands[argument]
            command = command.load() if isinstance(command, cli.LazyCommand) else command
            options |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return names, options


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_the_options_of_the_examples(page: str) -> None:
    wrong = list[str]()
    for arguments in commands_of(page):
        names, options = find_options(arguments)
        unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in options]
        if not names and not unknown and not arguments[0].startswith("-"):
            unknown = arguments[:1]
        wrong += [f"forgefront {' '.join(names)}: {word}" for word in unknown]
    assert not wrong, f"{page} has commands or options that do not exist: {', '.join(wrong)}"


def test_manual_has_every_command() -> None:
    named = {names[0] for arguments in commands_of("docs/manual.md") if (names := find_options(arguments)[0])}
    assert set(cli.COMMANDS) <= named


@pytest.mark.parametrize("page", PAGES)
def test_operations_of_the_examples_are_valid(page: str) -> None:
    operations = [*blocks_of(page, "graphql")]
    operations += [json.loads(sent)["query"] for text in blocks_of(page, "sh") for sent in SENT_QUERY.findall(text)]
    errors = [error.message for text in operations for error in validate(schema._schema, parse(text))]
    assert not errors and (operations or page not in ("README.md", "docs/manual.md")), page


def test_defaults_of_the_manual_are_those_of_the_settings() -> None:
    """Also that each variable of the table is a setting."""
    wrong, count = list[str](), 0
    table = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("## Settings")[2]
    for row in re.findall(r"^\| (`FORGEFRONT_.*) \|$", table, re.MULTILINE):
        variables, cell, _ = row.split(" | ", 2)
        names = [name.lower() for name in re.findall(r"`FORGEFRONT_(\w+)`", variables)]
        # One value may stand for all variables of its row.
        written = cell.split(", ") if len(names) > 1 and ", " in cell else [cell] * len(names)
        assert len(written) == len(names), row
        for name, value in zip(names, written, strict=True):
            count += 1
            field = Config.model_fields.get(name)
            if field is None or not is_default(value, field.default):
                wrong.append(f"FORGEFRONT_{name.upper()}: {value}, not {field.default if field else 'a setting'}")
    assert not wrong and count > 80


@pytest.mark.parametrize("page", ["docs/operations.md", "docs/moving.md"])
def test_configurations_of_the_examples_are_accepted(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example that only sets variables, as a shell and systemd read it."""
    examples = [text for text in blocks_of(page, "sh") if all(re.match(r" *(?:#|FORGEFRONT_\w+=|$)", line) for line in text.splitlines())]
    assert examples
    for text in examples:
        with monkeypatch.context() as environment:
            for assignment in shlex.split(text, comments=True):
                name, _, value = assignment.partition("=")
                environment.setenv(name, value)
                assert name.removeprefix("FORGEFRONT_").lower() in Config.model_fields
            Config.load()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT RUN: systemd-analyze (apt install systemd)")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    (unit,) = blocks_of("docs/operations.md", "ini")
    file = tmp_path / "forgefront.service"
    file.write_text(unit.replace("/opt/forgefront/bin/forgefront", sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if file.name in line]) == (0, [])


def is_default(written: str, default: Any) -> bool:
    if written in COMPUTED_DEFAULTS or INSTANCE_FILES.fullmatch(written):
        return default in (None, "", ())
    value = ",".join(default) if isinstance(default, tuple) else "" if default is None else str(default)
    return written.strip("`") == value or written in DEFAULTS.get(value.lower(), ())

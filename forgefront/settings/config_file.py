"""The configuration file, and the sources of invalid values."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from forgefront.settings.config_error import ConfigError

PREFIX = "FORGEFRONT_"
FILE_NAME = "forgefront.toml"
DEFAULT_DATA = Path("data")
OTHER_VARIABLES = re.compile(r"CONFIG|(?:RUNNER|IMPORT|TEST)_\w+")
"""Variables, without the prefix, that are no settings of the service: those of the runner, of imports and of the suite."""


def _find_file(overrides: Mapping[str, Any]) -> Path | None:
    """The configuration file in use. Raises ConfigError when FORGEFRONT_CONFIG names a missing file."""
    if explicit := os.environ.get(f"{PREFIX}CONFIG"):
        if not (path := Path(explicit)).is_file():
            raise ConfigError([f"{PREFIX}CONFIG: there is no file {path}"])
        return path
    data = Path(overrides.get("data") or os.environ.get(f"{PREFIX}DATA") or DEFAULT_DATA)
    path = data.expanduser() / FILE_NAME
    return path if path.is_file() else None


def read_file(overrides: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values of the configuration file. Raises ConfigError for an unreadable file, and for keys that are not among the `names`."""
    path = _find_file(overrides)
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError([f"{path}: {getattr(error, 'strerror', None) or error}"]) from None
    problems = [f"{path}: unknown key {key}{_suggest(key, names)}" for key in content if key not in names]
    if "data" in content and not os.environ.get(f"{PREFIX}CONFIG"):
        problems.append(f"{path}: data cannot be set in a file inside the data folder")
    if problems:
        raise ConfigError(problems)
    return content


def describe_unknown_variables(names: Collection[str]) -> list[str]:
    """A line for each variable of the environment that looks like a setting and is none of the `names`, so that it has no effect."""
    set_names = [name.removeprefix(PREFIX) for name, value in sorted(os.environ.items()) if name.startswith(PREFIX) and value]
    unknown = [name for name in set_names if name.lower() not in names and not OTHER_VARIABLES.fullmatch(name)]
    return [f"{PREFIX}{name} is no setting and has no effect{_suggest(name.lower(), names, PREFIX)}" for name in unknown]


def _suggest(name: str, names: Collection[str], prefix: str = "") -> str:
    similar = get_close_matches(name, names, n=1)
    if not similar:
        return ""
    return f"; did you mean {prefix}{similar[0].upper() if prefix else similar[0]}?"


def format_problems(error: ValidationError, overrides: Mapping[str, Any]) -> list[str]:
    """A line for each invalid value, with the option, environment variable or file that it is from."""
    problems = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        text = detail["msg"].removeprefix("Value error, ")
        if not detail["loc"]:
            problems.append(text)
            continue
        name = str(detail["loc"][0])
        if name in overrides:
            source = name
        elif os.environ.get(f"{PREFIX}{name.upper()}"):
            source = f"{PREFIX}{name.upper()}"
        else:
            source = f"{_find_file(overrides)}: {name}"
        problems.append(f"{source}: {text[:1].lower()}{text[1:]}")
    return problems

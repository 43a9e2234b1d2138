"""Scripts and environments of builds, without the runner's own environment."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Set

MAX_SYNTAX_CHECKS = 200
"""Maximum number of lines of a script that are checked for the end of a command; the lines after them are shown as one command."""

MAX_VARIABLE_BYTES = 2**17
"""What Linux permits for one variable, with its name (MAX_ARG_STRLEN)."""
POINTER_BYTES = 8
ARGUMENT_BYTES = 2**14
"""What remains for the arguments of programs, which count too."""

BASH = shutil.which("bash")
SHELL: tuple[str, ...] = (BASH, "--noprofile", "--norc", "-eo", "pipefail") if BASH else ("sh", "-e")

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def expand_references(variables: Mapping[str, str], secrets: Set[str]) -> dict[str, str]:
    """The variables with `$A` and `${A}` in their values replaced by the value of A, once; a name that is not among them stays.

    Values among `secrets` stay, because traces mask them as they are.

    >>> expand_references({"A": "1", "B": "$A-${A} $C", "PASSWORD": "a$A"}, {"a$A"})
    {'A': '1', 'B': '1-1 $C', 'PASSWORD': 'a$A'}
    """
    return {key: value if value in secrets else expand_string(value, variables) for key, value in variables.items()}


def expand_string(text: str, variables: Mapping[str, str]) -> str:
    """The string with `$A` and `${A}` replaced by the value of A, once; a name that is not among the variables stays.

    >>> expand_string("$A/${B}", {"A": "1"})
    '1/${B}'
    """
    return REFERENCE.sub(lambda match: variables.get(match[1] or match[2], match[0]), text)


def runner_path() -> str:
    """The search path of the runner."""
    return os.environ.get("PATH", os.defpath)


def build_environment(variables: Mapping[str, str], home: str, temporary: str, path: str) -> dict[str, str]:
    """The environment of a script: PATH, its own folders, and the build's variables."""
    found = {"PATH": path, "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8", "TERM": "dumb", "SHELL": SHELL[0]}
    return {**found, **{key: value for key, value in variables.items() if key and "=" not in key and "\0" not in key + value}}


def find_environment_problem(environment: Mapping[str, str]) -> str:
    """Why no program can be started with this environment (execve(2)); empty if programs can."""
    sizes = {key: len(os.fsencode(f"{key}={value}")) + 1 for key, value in environment.items()}
    name = max(sizes, key=lambda key: sizes[key], default="")
    if name and sizes[name] > MAX_VARIABLE_BYTES:
        return f"The variable {name} takes {sizes[name]} bytes; the system permits {MAX_VARIABLE_BYTES}."
    total, limit = sum(sizes.values()) + POINTER_BYTES * len(sizes), os.sysconf("SC_ARG_MAX") - ARGUMENT_BYTES
    return f"The variables take {total} bytes; the system permits {limit}." if total > limit else ""


def export_lines(environment: Mapping[str, str]) -> str:
    """The commands of a shell that set the variables. Names that a shell does not accept are left out."""
    pairs = ((key, value) for key, value in environment.items() if NAME_PATTERN.fullmatch(key) and (key != "PATH" or value))
    return "".join(f"export {key}={shlex.quote(value)}\n" for key, value in pairs)


def build_script(commands: Iterable[str]) -> str:
    """A script that prints each command before it runs it, and exits at the first failure.

    `make` becomes `printf '%s\\n' '$ make'` and `make`, each a line.
    """
    lines = []
    for command in commands:
        for part in split_statements(command):
            lines += [f"printf '%s\\n' {shlex.quote('$ ' + part)}", part]
    return "\n".join(lines) + "\n"


def split_statements(text: str) -> list[str]:
    """The commands of a script, each with all of its lines, as the shell parses them."""
    lines = text.splitlines()
    if len(lines) < 2:
        return [text] if text.strip() else []
    if BASH is None and "<<" in text:
        # Other shells do not report that the end of the script is missing.
        return [text]
    found: list[str] = []
    pending_lines: list[str] = []
    for number, line in enumerate(lines):
        if number >= MAX_SYNTAX_CHECKS:
            pending_lines += lines[number:]
            break
        pending_lines.append(line)
        if _is_complete("\n".join(pending_lines)):
            found.append("\n".join(pending_lines))
            pending_lines = []
    if pending_lines:
        found.append("\n".join(pending_lines))
    return [part for part in found if part.strip()]


def _is_complete(text: str) -> bool:
    if (len(text) - len(text.rstrip("\\"))) % 2:
        return False
    checked = subprocess.run([SHELL[0], "-n"], input=text.encode(), capture_output=True, env={"LANG": "C"}, check=False)  # noqa: S603
    return checked.returncode == 0 and not checked.stderr

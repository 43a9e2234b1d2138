"""The systemd unit of a runner."""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

PLAIN_WORD = re.compile(r"[\w@:,./=+-]+")

TEMPLATE = """\
# /etc/systemd/system/forgefront-runner.service; the user: useradd --system --home-dir /var/lib/forgefront-runner forgefront-runner
[Unit]
Description=Forgefront runner
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=5
# Longer than `grace`, after which builds are given back.
TimeoutStopSec={stop_seconds}
KillMode=mixed
# The limits of builds are cgroups below this one.
Delegate=cpu memory pids
StateDirectory=forgefront-runner
StateDirectoryMode=0700
WorkingDirectory=/var/lib/forgefront-runner
# NoNewPrivileges and RestrictNamespaces=false permit the user namespaces of bubblewrap.
NoNewPrivileges=true
RestrictNamespaces=false
ProtectSystem=full
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""


def render_unit(config: Path, user: str, grace: float, options: Mapping[str, object]) -> str:
    """The text of the unit. `options` are those of the command line, which the file does not have; `grace` is the one that applies."""
    program = shutil.which("forgefront")
    start = [str(Path(program).absolute())] if program else [sys.executable, "-m", "forgefront.cli"]
    arguments = ["runner", "--config", str(config.absolute())]
    for name, value in options.items():
        text = str(value.absolute()) if isinstance(value, Path) else f"{value:g}" if isinstance(value, float) else str(value)
        arguments += [f"--{name.replace('_', '-')}", text]
    words = [quote_word(start[0], is_program=True), *map(quote_word, (*start[1:], *arguments))]
    return TEMPLATE.format(user=user, command=" ".join(words), stop_seconds=int(grace) + 30)


def quote_word(text: str, *, is_program: bool = False) -> str:
    """A word of `ExecStart=`, in which systemd expands `%`, and, except in the path of the program, `$` (systemd.service(5)).

    >>> print(quote_word("/srv/ci"), quote_word("/srv/my ci/50% $HOME"), quote_word("/opt/$a b/run", is_program=True))
    /srv/ci "/srv/my ci/50%% $$HOME" "/opt/$a b/run"
    """
    if PLAIN_WORD.fullmatch(text):
        return text
    text = text.replace("%", "%%")
    if not is_program:
        text = text.replace("$", "$$")
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", text) + '"'

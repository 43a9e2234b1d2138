"""The systemd unit of a runner."""

import shutil
import sys
from pathlib import Path

TEMPLATE = """\
# /etc/systemd/system/forgefront-runner.service; the user: useradd --system --home-dir /var/lib/forgefront-runner forgefront-runner
[Unit]
Description=Forgefront runner
After=network-online.target
Wants=network-online.target

[Service]
User={user}
ExecStart={program} runner --config {config}{options}
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


def render_unit(config: Path, user: str, grace: float, *, has_grace_option: bool) -> str:
    """The text of the unit. `has_grace_option` says that `grace` is not that of the file, so that the runner needs the option too."""
    program = shutil.which("forgefront") or f"{sys.executable} -m forgefront.cli"
    options = f" --grace {grace:g}" if has_grace_option else ""
    return TEMPLATE.format(user=user, program=program, config=config.absolute(), options=options, stop_seconds=int(grace) + 30)

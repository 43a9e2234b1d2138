"""Routes of GitLab 8.5 that the interface document leaves out (docs/decisions.md 41), read from `further_routes.tsv` beside this file.

Parameters are those of the path and the query or body, paging left out; a "*" in the file marks a required one.
"""

import csv
import re
from pathlib import Path

from rest_v3.route import PATH_ALIASES
from tests.rest_v3.support.interface_document import DocumentedCall

FURTHER_ROUTES = Path(__file__).parent / "further_routes.tsv"


def _read_calls() -> tuple[DocumentedCall, ...]:
    found: dict[str, DocumentedCall] = {}
    with FURTHER_ROUTES.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            path = row["path"]
            for alias, prefix in PATH_ALIASES.items():
                path = path.replace(f"{alias}/", f"{prefix}/")
            call = f"{row['method']} {path}"
            in_path = tuple(segment[1:] for segment in path.split("/") if segment.startswith(":"))
            others = re.sub(r"\([^)]*\)|\[[^]]*\]", "", row["parameters"] or "").replace("*", "!")
            names = [name.strip() for name in others.split(",") if name.strip() not in ("", "page", "per_page", "as POST")]
            if others == "as POST":
                names = [name for name in found[f"POST {path}"].params if name not in in_path]
            # The calls of an alias are those of its path.
            found.setdefault(call, DocumentedCall(row["group"], call, None, (*in_path, *names)))
    return tuple(found.values())


FURTHER_CALLS = _read_calls()

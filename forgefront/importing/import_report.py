"""The report of an import: what was read and written, and everything that was left behind, with the reason."""

import html
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_LISTED = 100_000
"""Omissions that are listed one by one; further ones are counted, so that memory is bounded."""

NEVER_IMPORTED = (
    ("passwords", "the interface shows none: people sign in through a directory, or an administrator sets new ones"),
    ("two-factor secrets", "the interface shows none: people set them up again"),
    ("registration tokens of projects", "runners that are registered keep their tokens; register new ones with the new token"),
    ("avatar images", "users and projects keep a link to the image on the old server"),
    ("LFS objects and pages of wikis", "the report lists the projects that have some: copy them from the old server's disk"),
    ("stars, activities, notification settings and OAuth applications", "the interface does not show those of other users"),
)
"""What no interface shows, so that no run looks for it."""


@dataclass(slots=True)
class KindCount:
    """Numbers of items of one kind. `read` counts those that this run has read from the source."""

    read: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: int = 0

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Omission:
    """An item of the old server, or a part of one, that was not imported: its kind, its path or URL there, and the reason."""

    kind: str
    where: str
    reason: str


@dataclass(slots=True)
class ImportReport:
    """`notes` say what holds for the whole run."""

    source: str
    is_dry_run: bool = False
    api: str = ""
    version: str | None = None
    keeps_ids: bool = False
    counts: dict[str, KindCount] = field(default_factory=dict)
    omissions: list[Omission] = field(default_factory=list)
    unlisted: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    requests: int = 0
    seconds: float = 0.0
    is_complete: bool = False

    def count(self, kind: str) -> KindCount:
        return self.counts.setdefault(kind, KindCount())

    def skip(self, kind: str, where: str, reason: str) -> None:
        """Records an item that was not imported."""
        self.count(kind).skipped += 1
        self.record_omission(kind, where, reason)

    def record_omission(self, kind: str, where: str, reason: str) -> None:
        """Records a part of an item that was not imported."""
        if len(self.omissions) < MAX_LISTED:
            self.omissions.append(Omission(kind, where, reason))
        else:
            self.unlisted[kind] += 1

    def note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    @property
    def total_left_behind(self) -> int:
        return len(self.omissions) + self.unlisted.total()

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "api": self.api,
            "version": self.version,
            "dry_run": self.is_dry_run,
            "keep_ids": self.keeps_ids,
            "complete": self.is_complete,
            "counts": {kind: count.as_json() for kind, count in self.counts.items()},
            "left_behind": [{"kind": each.kind, "where": each.where, "reason": each.reason} for each in self.omissions],
            "unlisted": dict(self.unlisted),
            "never_imported": [{"what": what, "reason": reason} for what, reason in NEVER_IMPORTED],
            "notes": self.notes,
            "requests": self.requests,
            "seconds": round(self.seconds, 3),
        }

    def as_text(self, *, max_lines: int = 50) -> str:
        """The report for a terminal; `max_lines` bounds the list of what was left behind."""
        lines = [f"{'kind':<18}{'read':>9}{'created':>9}{'updated':>9}{'unchanged':>11}{'skipped':>9}"]
        for kind, count in self.counts.items():
            numbers = f"{count.read:>9,}{count.created:>9,}{count.updated:>9,}{count.unchanged:>11,}{count.skipped:>9,}"
            lines.append(f"{kind:<18}{numbers}")
        if self.total_left_behind:
            lines += ["", f"Left behind: {self.total_left_behind:,}"]
            lines += [f"  {each.kind}  {each.where}: {each.reason}" for each in self.omissions[:max_lines]]
            if self.total_left_behind > max_lines:
                lines.append(f"  … and {self.total_left_behind - max_lines:,} more; --report FILE.html and --json list them")
        lines += ["", "Never imported:", *(f"  {what}: {reason}" for what, reason in NEVER_IMPORTED)]
        if self.notes:
            lines += ["", *(f"note   {note}" for note in self.notes)]
        lines += ["", f"{self.requests:,} requests in {_describe_duration(self.seconds)}"]
        # A name may contain any characters; control characters of the terminal are replaced.
        return "\n".join("".join(each if each.isprintable() else "�" for each in line) for line in lines)

    def as_html(self) -> str:
        """The report as a page that needs nothing else."""
        title = f"{'Rehearsal' if self.is_dry_run else 'Import'} of {html.escape(self.source)}"
        state = "complete" if self.is_complete else "not complete: run the same command again, it goes on where it was"
        facts = [
            f"API {self.api}" + (f", version {self.version}" if self.version else ""),
            "ids are kept" if self.keeps_ids else "ids are new",
            f"{self.requests:,} requests in {_describe_duration(self.seconds)}",
            state,
        ]
        columns = ("kind", *KindCount.__slots__)
        counts = "".join(
            f"<tr><td>{html.escape(kind)}</td>{''.join(f'<td class=n>{number:,}</td>' for number in count.as_json().values())}</tr>"
            for kind, count in self.counts.items()
        )
        left = "".join(
            f"<tr><td>{html.escape(each.kind)}</td><td>{html.escape(each.where)}</td><td>{html.escape(each.reason)}</td></tr>"
            for each in self.omissions
        )
        more = "".join(f"<p>{number:,} more {html.escape(kind)} are not listed.</p>" for kind, number in self.unlisted.items())
        never = "".join(f"<tr><td>{html.escape(what)}</td><td>{html.escape(reason)}</td></tr>" for what, reason in NEVER_IMPORTED)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return _PAGE.format(
            title=title,
            facts="".join(f"<li>{html.escape(fact)}</li>" for fact in facts),
            columns="".join(f"<th>{column}</th>" for column in columns),
            counts=counts,
            total=f"{self.total_left_behind:,}",
            left=left,
            more=more,
            never=never,
            notes=f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        )


def _describe_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ border-bottom: 1px solid #ccc; padding: .3rem .6rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
</style></head><body>
<h1>{title}</h1><ul>{facts}</ul>
<h2>Numbers</h2><table><thead><tr>{columns}</tr></thead><tbody>{counts}</tbody></table>
<h2>Left behind: {total}</h2><table><thead><tr><th>kind</th><th>where</th><th>reason</th></tr></thead><tbody>{left}</tbody></table>{more}
<h2>Never imported</h2><table><tbody>{never}</tbody></table>
{notes}</body></html>
"""

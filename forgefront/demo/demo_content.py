"""Text that the demo's users write: a few weeks of work around any history."""

from dataclasses import dataclass
from datetime import timedelta

LABELS = {"bug": "#D9534F", "feature": "#5CB85C", "documentation": "#428BCA", "question": "#8E44AD", "easy": "#F0AD4E"}
MILESTONE = "Next release"
MILESTONE_TEXT = "What has to work before the next release goes out."
HISTORY_SPAN = timedelta(days=28)
"""Time between the start of the demo's activity and the last commit."""


@dataclass(frozen=True, slots=True)
class IssueContent:
    """An issue. `{name}`, `{branch}` and `{commit}` are replaced by the project, its default branch and its newest commit.

    `author`, `assignee` and the authors of `notes` are accounts of the demo, or a number: the index of an author of the history, modulo
    their count.
    """

    title: str
    description: str
    author: str | int
    labels: tuple[str, ...] = ()
    assignee: str | int | None = None
    has_milestone: bool = False
    is_closed: bool = False
    notes: tuple[tuple[str | int, str], ...] = ()
    placeholder: str = ""
    """A key that later texts use for its number."""


ISSUES = (
    IssueContent(
        "The build should work from a clean checkout",
        "A fresh clone of {name} needs steps that are written down nowhere.\n\n1. clone\n2. build\n\n"
        "Step 2 fails until a folder is made by hand.",
        "reporter",
        ("bug", "documentation"),
        "dev",
        has_milestone=True,
        notes=(
            ("dev", "Seen here too, on `{branch}` as of {commit}."),
            (0, "The folder was made by an installer that is gone. I would have the build make it."),
            ("reporter", "That would be enough for me."),
        ),
    ),
    IssueContent(
        "Say in the README which versions are supported",
        "Users ask this every week.",
        0,
        ("documentation", "easy"),
        "reporter",
        has_milestone=True,
        notes=(("dev", "The last two releases, I would say."), ("reporter", ":+1:")),
        placeholder="versions",
    ),
    IssueContent(
        "Times are shown in the server's zone",
        "Somebody in Auckland sees yesterday's date. Times should come with their offset, or in UTC.",
        1,
        ("bug",),
        notes=((0, "Which page is it?"), (1, "All of them, as far as I can see. `2016-01-19` in the list, `2016-01-20` in the details.")),
    ),
    IssueContent(
        "Search finds nothing with an umlaut in it",
        "Searching for `Müller` gives no result, `M` gives it.",
        "reporter",
        ("bug", "easy"),
        2,
        notes=(("dev", "Composed and decomposed letters, probably."),),
    ),
    IssueContent(
        "Offer a dark theme",
        "At night the pages are very bright.",
        2,
        ("feature",),
        notes=(("reporter", ":+1:"), ("dev", ":+1:"), (1, "Please follow what the system says, rather than another switch.")),
    ),
    IssueContent(
        "How do I import a repository with a large history?",
        "Ours has 80,000 commits. Is there anything to watch out for?",
        "reporter",
        ("question",),
        is_closed=True,
        notes=(
            ("dev", "`forgefront admin project create GROUP/NAME --repository PATH` shows how far it is; it takes minutes, not hours."),
            ("reporter", "Thank you, that went well."),
        ),
    ),
    IssueContent(
        "Long lines make the diff unreadable",
        "A minified file of one line of 300 kB. The browser stops for a while.",
        3,
        ("bug",),
        "dev",
        has_milestone=True,
    ),
    IssueContent(
        "Drop what was deprecated two releases ago",
        "Nothing uses it any more.",
        "dev",
        ("feature",),
        "dev",
        has_milestone=True,
        notes=(("dev", "Blocked by the documentation of what replaces it."),),
    ),
)

OTHER_ISSUES = (
    IssueContent(
        "Write down how decisions are made", "Who decides, and where it is kept.", "dev", notes=(("outsider", "May guests comment?"),)
    ),
    IssueContent("A glossary", "New people ask for the same ten words.", "reporter"),
)
PRIVATE_ISSUES = (IssueContent("Rotate the keys", "Every quarter.", "root", notes=(("root", "Done for this quarter."),)),)


@dataclass(frozen=True, slots=True)
class SnippetContent:
    """A snippet, whose `content` has the same placeholders as an issue's text."""

    title: str
    file_name: str
    content: str
    notes: tuple[tuple[str | int, str], ...]


SNIPPET = SnippetContent(
    "Who works on what at the moment",
    "authors.sh",
    "#!/bin/sh\n# Who wrote the last hundred commits of {name}.\ngit log -100 --format=%an {branch} | sort | uniq -c | sort -rn\n",
    (("reporter", "Useful. Does it follow the mailmap?"), ("dev", "With `%aN` it would.")),
)


@dataclass(frozen=True, slots=True)
class MergeRequestContent:
    """A merge request: a commit of `files` on its own branch, with notes."""

    branch: str
    title: str
    description: str
    author: str
    assignee: str | None
    labels: tuple[str, ...]
    message: str
    files: dict[str, str]
    notes: tuple[tuple[str | int, str], ...] = ()


MERGE_REQUESTS = (
    MergeRequestContent(
        "supported-versions",
        "Say which versions are supported",
        "Users ask this every week.\n\nCloses #{versions}",
        "dev",
        "reporter",
        ("documentation", "easy"),
        "Say which versions are supported\n\nThe last two releases, as was agreed.",
        {"docs/supported-versions.md": "# Supported versions\n\nThe last two releases get fixes. Older ones do not.\n"},
        (("reporter", "Just what I was looking for."), ("dev", "Shall the dates stand there too?"), ("reporter", ":+1:")),
    ),
    MergeRequestContent(
        "dark-theme",
        "WIP: A dark theme",
        "Follows what the system says. The charts are missing.",
        "dev",
        None,
        ("feature",),
        "Begin a dark theme",
        {"docs/themes.md": "# Themes\n\nLight and dark, as the system says.\n"},
        ((1, "Please keep the contrast above 4.5."),),
    ),
)

CLOSING_NOTE = "Done in {commit}."
COMMENT_ON_LINE = "Does this line need a test of its own?"
COMMENTS_ON_COMMIT = (("dev", "Good as it is; the suite covers it."), ("reporter", "Verified on `{branch}`."))

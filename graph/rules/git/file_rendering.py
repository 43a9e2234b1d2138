"""Markdown files of a repository, such as a README, as HTML."""

from graph.context import Context
from graph.rules.git.trees import ProjectBlob
from graph.rules.markdown import texts
from graph.rules.markdown.rendering import MAX_CHARACTERS
from graph.rules.markdown.texts import MarkdownText

MARKDOWN_SUFFIXES = (".md", ".markdown")
SYMBOLIC_LINK = "120000"


async def load_html(context: Context, blob: ProjectBlob) -> str | None:
    """The sanitized HTML of a Markdown file; None for other files and for long ones."""
    text = blob.text
    if not blob.name.lower().endswith(MARKDOWN_SUFFIXES) or blob.mode == SYMBOLIC_LINK or text is None or len(text) > MAX_CHARACTERS:
        return None
    return (await texts.load_html(context, [MarkdownText(blob.project_id, text, blob.ref, blob.path.rpartition("/")[0])]))[0]

"""Fields that are the HTML of a Markdown text, and the one that renders a text before it is written."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.fields.declarations import computed
from graph.rules.markdown.texts import MarkdownText, load_html


def markdown_html(project_id: Any, *keys: Any, description: str, text_of: Callable[[Context, Any], str | None] | None = None) -> Any:
    """A field that is the HTML of a text of a row; the text is the first of `keys`, or what `text_of(context, row)` returns.

    >>> markdown_html(tables.Issue.project_id, tables.Issue.description, description="…")
    """

    def get_text(context: Context, row: Any) -> MarkdownText:
        text = text_of(context, row) if text_of is not None else getattr(row, keys[0].key)
        return MarkdownText(row.project_id, text or "")

    async def resolve_batch(info: Info, rows: Sequence[Any]) -> list[str]:
        return await load_html(info.context, [get_text(info.context, row) for row in rows])

    async def resolver(root: Any, info: Info) -> str:
        return (await load_html(info.context, [get_text(info.context, root)]))[0]

    return computed(
        project_id,
        *keys,
        batch=resolve_batch,
        description=f"{description} as sanitized HTML; empty if there is none. References such as `#7`, `!3`, `@dev` and commit IDs are"
        " links if the viewer can see what they refer to.",
    )(resolver)


@strawberry.type
class ProjectMarkdownFields:
    """Fields of a project about Markdown."""

    @strawberry.field(
        description="A Markdown text as sanitized HTML, as `descriptionHtml` would be in this project; a text of more than 100,000"
        " characters is shown as it is."
    )
    async def markdown_html(self, info: Info, text: Annotated[str, strawberry.argument(description="Text in Markdown.")]) -> str:
        return (await load_html(info.context, [MarkdownText(self.id, text)]))[0]  # type: ignore[attr-defined]

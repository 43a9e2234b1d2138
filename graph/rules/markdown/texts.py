"""The HTML of Markdown texts of an operation, and their suggestions, for all texts of a level together."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from graph.context import Context
from graph.rules import web_urls
from graph.rules.markdown import references
from graph.rules.markdown.references import ProjectReference
from graph.rules.markdown.rendering import (
    LinkBase,
    ParsedMarkdown,
    SuggestedText,
    find_suggestions,
    may_have_suggestions,
    parse,
    render,
)

MAX_LOOP_CHARACTERS = 2_000
"""Texts up to this total length are rendered on the event loop, which takes some 10 ms; longer ones in a thread."""
MAX_OPERATION_CHARACTERS = 300_000
"""Total length of the texts that one operation renders, and of those that it searches for suggestions.

Further ones are shown as they are, and have no suggestions.
"""

LOADER = "rendered markdown"
"""Key of the loader in `Context.loaders`."""

T = TypeVar("T")


class MarkdownText(NamedTuple):
    """A text of a project. `ref` and `folder` say where it is a file; see `LinkBase`."""

    project_id: int
    text: str
    ref: str | None = None
    folder: str = ""


async def load_html(context: Context, texts: Sequence[MarkdownText]) -> list[str]:
    """The sanitized HTML of the texts; the viewer must be allowed to read them."""
    rendered_characters = 0

    async def fetch(keys: list[MarkdownText]) -> dict[MarkdownText, str]:
        nonlocal rendered_characters
        total = sum(len(key.text) for key in keys)

        def parse_all() -> list[ParsedMarkdown]:
            nonlocal rendered_characters
            found = []
            for key in keys:
                is_within_budget = rendered_characters + len(key.text) <= MAX_OPERATION_CHARACTERS
                found.append(parse(key.text) if is_within_budget else ParsedMarkdown(key.text, None, []))
                rendered_characters += len(key.text) if is_within_budget else 0
            return found

        parsed = await _run(context, parse_all, total)
        links = await references.resolve(
            context, [ProjectReference(key.project_id, each) for key, one in zip(keys, parsed, strict=True) for each in one.references]
        )
        project_ids = sorted({key.project_id for key in keys})
        urls = dict(zip(project_ids, await web_urls.load_project_urls(context, project_ids), strict=True))

        def render_all() -> dict[MarkdownText, str]:
            found = {}
            for key, one in zip(keys, parsed, strict=True):
                by_reference = {each: ProjectReference(key.project_id, each) for each in one.references}
                of_text = {each: links[of_project] for each, of_project in by_reference.items() if of_project in links}
                found[key] = render(one, of_text, LinkBase(urls[key.project_id], key.ref, key.folder))
            return found

        return await _run(context, render_all, total)

    loaded = await context.loader(LOADER, fetch).get_many(texts)
    return [loaded[key] or "" for key in texts]


async def load_suggestions(context: Context, text: str) -> list[SuggestedText]:
    """The suggestions of a text, in order: those that its HTML shows."""
    if not may_have_suggestions(text):
        return []
    searched_characters = 0

    async def fetch(keys: list[str]) -> dict[str, list[SuggestedText]]:
        nonlocal searched_characters
        searched = []
        for key in keys:
            if searched_characters + len(key) <= MAX_OPERATION_CHARACTERS:
                searched.append(key)
                searched_characters += len(key)
        return await _run(context, lambda: {key: find_suggestions(key) for key in searched}, sum(map(len, searched)))

    return await context.loader("suggestions", fetch).get(text) or []


async def _run(context: Context, work: Callable[[], T], characters: int) -> T:
    if characters <= MAX_LOOP_CHARACTERS:
        return work()
    async with context.services.rendering_semaphore:
        return await asyncio.to_thread(work)

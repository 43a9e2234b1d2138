"""`webUrl`: the URL of the page of an object in a project."""

from collections.abc import Sequence
from typing import Any

from graph.context import Info
from graph.fields.declarations import computed
from graph.rules import web_urls


def web_url(section: str, project_id: Any, *keys: Any, description: str) -> Any:
    """A field for objects whose page is at `PROJECT/section/NUMBER`.

    NUMBER is the first non-null column of `keys`.

    >>> web_url("issues", tables.Issue.project_id, tables.Issue.iid, description="…")  # https://forge.example/ada/mill/issues/3
    """

    def page_path(row: Any) -> str:
        return f"{section}/{next(value for key in keys if (value := getattr(row, key.key)) is not None)}"

    async def resolve_batch(info: Info, rows: Sequence[Any]) -> list[str]:
        urls = await web_urls.load_project_urls(info.context, [row.project_id for row in rows])
        return [f"{url}/{page_path(row)}" for url, row in zip(urls, rows, strict=True)]

    async def resolver(root: Any, info: Info) -> str:
        return f"{await web_urls.load_project_url(info.context, root.project_id)}/{page_path(root)}"

    return computed(project_id, *keys, batch=resolve_batch, description=description)(resolver)

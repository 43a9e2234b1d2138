"""Which trusted documents this service serves: those that come with it, and those that its configuration names."""

from pathlib import Path

from forgefront.config import PREFIX, Config, ConfigError
from graph import trusted
from graph.execute import Graph
from graph.trusted import Document, Trusted

BUILT_IN = (trusted.DASHBOARDS, Path(__file__).parent / "pages" / "operations")
"""Folders of `.graphql` files. The pages' own operations are among them, so that the pages work where no other text is served."""


def built_in() -> list[Document]:
    """The documents that come with the service."""
    return [document for folder in BUILT_IN for document in trusted.built_in(folder).documents]


def serve(graph: Graph, config: Config) -> None:
    """Has the graph serve the documents that the configuration says. Raises ConfigError, with a line for each that is broken."""
    if config.documents_mode != "off":
        graph.trust(Trusted([*_configured(config), *built_in()]), only=config.documents_mode == "only")


def _configured(config: Config) -> tuple[Document, ...]:
    if config.documents is None:
        return ()
    try:
        found = trusted.read(config.documents)
    except OSError as error:
        raise ConfigError([f"{PREFIX}DOCUMENTS: {config.documents} cannot be read: {error.strerror or error}"]) from None
    if found.problems:
        raise ConfigError([f"{PREFIX}DOCUMENTS: {problem}" for problem in found.problems])
    return found.documents

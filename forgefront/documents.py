"""Which trusted documents this service serves: those that come with it, and those that its configuration names."""

from forgefront.config import PREFIX, Config, ConfigError
from forgefront.pages import OPERATIONS
from graph import trusted
from graph.execute import Graph
from graph.trusted import Document, Trusted


def built_in() -> tuple[Document, ...]:
    """The documents that come with the service, to be asked for by anybody."""
    return trusted.built_in(trusted.DASHBOARDS).documents


def serve(graph: Graph, config: Config) -> None:
    """Has the graph serve the documents that the configuration says. Raises ConfigError, with a line for each that is broken.

    The pages' own operations are among them, so that the pages work where no other text is served.
    """
    if config.documents_mode != "off":
        documents = Trusted([*_configured(config), *built_in()], nameless=trusted.built_in(OPERATIONS).documents)
        graph.trust(documents, only=config.documents_mode == "only")


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

"""Which trusted documents this service serves: those that come with it, and those that its configuration names."""

from forgefront.config import PREFIX, Config, ConfigError
from forgefront.pages import OPERATIONS_FOLDER
from graph.operations import trusted_documents
from graph.operations.execution import Graph
from graph.operations.trusted_documents import TrustedDocument, TrustedDocuments


def built_in_documents() -> tuple[TrustedDocument, ...]:
    """The documents that come with the service, to be asked for by anybody."""
    return trusted_documents.read_built_in(trusted_documents.DASHBOARDS).documents


def serve_documents(graph: Graph, config: Config) -> None:
    """Has the graph serve the documents that the configuration says. Raises ConfigError, with a line for each that is broken.

    The pages' own operations are among them, so that the pages work where no other text is served.
    """
    if config.documents_mode != "off":
        documents = TrustedDocuments(
            [*_read_configured(config), *built_in_documents()], unnamed=trusted_documents.read_built_in(OPERATIONS_FOLDER).documents
        )
        graph.serve_trusted_documents(documents, trusted_only=config.documents_mode == "only")


def _read_configured(config: Config) -> tuple[TrustedDocument, ...]:
    if config.documents is None:
        return ()
    try:
        result = trusted_documents.read_documents(config.documents)
    except OSError as error:
        raise ConfigError([f"{PREFIX}DOCUMENTS: {config.documents} cannot be read: {error.strerror or error}"]) from None
    if result.problems:
        raise ConfigError([f"{PREFIX}DOCUMENTS: {problem}" for problem in result.problems])
    return result.documents

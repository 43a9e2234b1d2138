"""The trusted documents that this service serves: its own, and those of its configuration."""

from forgefront.config import Config, ConfigError
from forgefront.pages import NAMED_OPERATIONS_FOLDER, OPERATIONS_FOLDER
from forgefront.settings.config_file import PREFIX
from graph.documents import trusted_documents
from graph.documents.documents import PreparedOperation
from graph.documents.trusted_documents import TrustedDocument, TrustedDocuments
from graph.operations.execution import Graph


def built_in_documents() -> tuple[TrustedDocument, ...]:
    """The documents of the service, open to everybody."""
    folders = (trusted_documents.DASHBOARDS, NAMED_OPERATIONS_FOLDER)
    return tuple(document for folder in folders for document in trusted_documents.read_built_in(folder).documents)


def serve_documents(graph: Graph, config: Config) -> None:
    """Makes the graph serve the documents of the configuration. Raises ConfigError, with a line for each invalid one.

    The pages' own operations are included, so that the pages work where no other operations are served.
    """
    if config.documents_mode != "off":
        documents = TrustedDocuments(
            [*_read_configured(config), *built_in_documents()], unnamed=trusted_documents.read_built_in(OPERATIONS_FOLDER).documents
        )
        graph.serve_trusted_documents(documents, trusted_only=config.documents_mode == "only")


def list_operations(graph: Graph) -> list[PreparedOperation]:
    """The operations of the documents that the graph serves, those of the dashboards among them."""
    return [parsed.prepared for by_name in graph.trusted_documents.operations_by_text.values() for parsed in by_name.values()]


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

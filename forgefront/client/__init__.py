"""Typed Python clients of the graph, made from a folder of operations.

`documents` reads the folder and holds it against the schema; `selections` makes classes of what operations answer, `inputs` of what they
are sent, both as the data of `model`; `printing` prints it, in lines that no formatter changes (`layout`). `runtime` and `streams` stand
in every client as they stand here.
"""

from pathlib import Path

from graphql import GraphQLSchema

from forgefront.client import documents, printing
from forgefront.client.documents import Problem, WrongOperationsError
from forgefront.client.selections import model_of

__all__ = ["Problem", "WrongOperationsError", "generate"]


def generate(folder: Path, schema: GraphQLSchema, version: str) -> str:
    """The source of a module for the operations in the `.graphql` files of a folder, the same for the same files, schema and version.

    Raises WrongOperationsError.
    """
    return printing.module(model_of(documents.read(folder, schema), schema), version)

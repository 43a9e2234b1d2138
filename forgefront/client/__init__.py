"""Generates typed Python clients of the GraphQL API from a folder of operations.

`operation_documents` reads the folder and validates it against the schema. `selections` turns results and `inputs` turns variables into
classes, both as data of `client_model`. `renderer` prints them in lines that no formatter changes (`layout`). `runtime` and `streams` are
copied into every client unchanged.
"""

from pathlib import Path

from graphql import GraphQLSchema

from forgefront.client import operation_documents, renderer
from forgefront.client.operation_documents import InvalidOperationsError, OperationProblem
from forgefront.client.selections import build_model

__all__ = ["InvalidOperationsError", "OperationProblem", "generate"]


def generate(folder: Path, schema: GraphQLSchema, version: str) -> str:
    """The source of a module for the operations in the `.graphql` files of a folder. The same input produces the same module.

    Raises InvalidOperationsError.
    """
    return renderer.render_module(build_model(operation_documents.read(folder, schema), schema), version)

"""The comments that describe operations in `.graphql` files."""

from graphql import OperationDefinitionNode, TokenKind


def comment_above(operation: OperationDefinitionNode) -> str:
    """The comment directly above an operation, as one line; empty if there is none, or if the operation was parsed without locations."""
    lines: list[str] = []
    token = operation.loc.start_token if operation.loc else None
    while token and token.prev and token.prev.kind is TokenKind.COMMENT and token.prev.line == token.line - 1:
        token = token.prev
        lines.insert(0, (token.value or "").strip())
    return " ".join(line for line in lines if line)

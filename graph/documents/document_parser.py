"""Parses documents that live long, without their tokens, and with one string for all equal names.

Tokens are a third of the memory of a parsed document. They refer to each other, so only the garbage collector would free them, and what
is parsed during the start is never collected.
"""

import sys
from typing import Any

import graphql
from graphql import DocumentNode, Location, NameNode, Token, TokenKind
from graphql.language.parser import Parser


def parse_without_tokens(source: str, **settings: Any) -> DocumentNode:
    """As `graphql.parse`, with its settings. The locations of the nodes have their positions, but no tokens."""
    parser = _TokenlessParser(source, **settings)
    try:
        return parser.parse_document()
    except RecursionError:
        # Its error names the limit.
        return graphql.parse(source, **settings)
    finally:
        parser.release_tokens()


class _TokenlessParser(Parser):
    def loc(self, start_token: Token) -> Location | None:
        location = super().loc(start_token)
        if location is not None:
            location.start_token = location.end_token = None  # type: ignore[assignment]
        return location

    def parse_name(self) -> NameNode:
        # The operations of this product have some 20,000 names, of which a few hundred are different.
        token = self.expect_token(TokenKind.NAME)
        return NameNode(value=sys.intern(token.value or ""), loc=self.loc(token))

    def release_tokens(self) -> None:
        token: Token | None = self._lexer.token
        while token is not None:
            previous = token.prev
            token.prev = token.next = None
            token = previous

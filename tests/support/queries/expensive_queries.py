"""Expensive requests to `/graphql`, each within the limits or slightly above them, for the loop-lag tests."""

from typing import Any

import orjson
from graphql import get_introspection_query

MERGE_REQUESTS = """id databaseId iid title description state createdAt updatedAt mergedAt labels sourceBranch targetBranch
    author { username } noteCount upvotes restPath viewerCan { update comment }"""


def request_body(query: str, **variables: Any) -> bytes:
    return orjson.dumps({"query": query, "variables": variables})


def nested_query(selection: str, size: int) -> str:
    """A query whose nested lists contain this number of thousand rows, or as many as there are."""
    return f"{{ projects(first: {size}) {{ nodes {{ id {selection} }} }} }}"


EXPENSIVE_QUERIES: dict[str, bytes] = {
    "introspection": request_body(get_introspection_query()),
    "introspection beside data": request_body("{ viewer { id } " + get_introspection_query().partition("{")[2]),
    "fields that are compared": request_body(
        "{ viewer { " + " ".join(f"... on User {{ {'projects { totalCount } ' * 12} }}" for _ in range(4)) + "} }"
    ),
    "fields of many names": request_body(
        "{ projects { nodes { " + "id name path webUrl createdAt description fullPath visibility " * 49 + "} } }"
    ),
    "fragments that are compared": request_body(
        "{ viewer { "
        + " ".join(f"...F{n}" for n in range(100))
        + " } }"
        + "".join(f" fragment F{n} on User {{ id name }}" for n in range(100))
    ),
    "fragments in a chain": request_body(
        "{ viewer { ...F0 } }" + "".join(f" fragment F{n} on User {{ id ...F{n + 1} }}" for n in range(99)) + " fragment F99 on User { id }"
    ),
    "unknown fields": request_body("{ viewer { " + " ".join(f"f{n}" for n in range(1_900)) + " } }"),
    "a string of 99,000 characters": request_body('{ project(path: "' + "\\n" * 49_000 + '") { id } }'),
    "99,000 commas": request_body("{" + "," * 99_000 + "viewer { id } }"),
    "a megabyte of commas": request_body("{" + "," * 1_000_000 + "viewer { id } }"),
    "a megabyte of escapes": request_body('{ project(path: "' + "\\n" * 250_000 + '") { id } }'),
    "500,000 numbers": request_body("{ viewer { id } }", a=[1] * 500_000),
    "300,000 lists": request_body("{ viewer { id } }", a=[[]] * 300_000),
    "100,000 objects": request_body("{ viewer { id } }", a=[{"a": {}}] * 80_000),
    "unclosed lists": b"[" * 1_000_000,
    "quotes": b'{"query": [' + b'""' * 500_000,
    "19,000 wrong ids": request_body("query ($ids: [ID!]!) { nodes(ids: $ids) { id } }", ids=[{}] * 9_400),
    "9,900 ids": request_body("query ($ids: [ID!]!) { nodes(ids: $ids) { id } }", ids=["x"] * 9_900),
    "rows": request_body(nested_query(f"mergeRequests(first: 100) {{ nodes {{ {MERGE_REQUESTS} }} }}", 40)),
    "edges": request_body(
        nested_query("mergeRequests(first: 100) { edges { cursor node { title createdAt author { name } } } pageInfo { endCursor } }", 40)
    ),
    "rows of several lists": request_body(
        nested_query(
            "issues { nodes { id } } a: mergeRequests(first: 50) { nodes { id labels closesIssues(first: 1) { nodes { id } } } }", 40
        )
    ),
    "a null for a size": request_body(
        "query ($n: Int = 0) { projects(first: $n) { nodes { mergeRequests(first: $n) { nodes { closesIssues(first: $n) { nodes { "
        "mergeRequests(first: $n) { nodes { closesIssues(first: $n) { nodes { id } } } } } } } } } } }",
        n=None,
    ),
    "a long search": request_body("query ($s: String!) { projects(filter: {search: $s}) { nodes { id } } }", s="%_\\" * 200_000),
}
"""By the reason for their cost."""

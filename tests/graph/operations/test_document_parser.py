"""What parsed documents keep in memory."""

from graphql import DocumentNode, FieldNode, OperationDefinitionNode, parse

from graph.documents.document_parser import parse_without_tokens

TEXT = 'query Names { first: project(path: "a/b") { name } second: project(path: "c/d") { name } }'


def names_of(document: DocumentNode) -> list[str]:
    (operation,) = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    fields = [each for each in operation.selection_set.selections if isinstance(each, FieldNode)]
    return [each.name.value for field in fields for each in (field, *field.selection_set.selections)]  # type: ignore[union-attr]


class TestParsing:
    def test_finds_the_nodes_that_graphql_core_finds(self) -> None:
        assert parse_without_tokens(TEXT) == parse(TEXT)

    def test_positions_are_kept_and_tokens_are_not(self) -> None:
        location = parse_without_tokens(TEXT).definitions[0].loc

        assert location is not None
        assert (location.start, location.end) == (0, len(TEXT))
        assert location.start_token is None

    def test_equal_names_are_one_string(self) -> None:
        names = names_of(parse_without_tokens(TEXT))

        assert names == ["project", "name", "project", "name"]
        assert len({id(name) for name in names}) == 2

"""The schema: Query and Mutation are the sums of the type files."""

import strawberry
from strawberry.schema.config import StrawberryConfig

from graph.declare import install
from graph.scalars import SCALARS
from graph.types.commit_comments import CommitCommentMutations
from graph.types.issues import IssueMutations, IssueQueries
from graph.types.nodes import NodeQueries
from graph.types.notes import NoteMutations
from graph.types.projects import ProjectQueries
from graph.types.users import UserQueries


@strawberry.type(description="Everything that can be asked. A thing that the viewer may not see is not found.")
class Query(NodeQueries, UserQueries, ProjectQueries, IssueQueries):
    pass


@strawberry.type(description="Everything that can be changed; one field an operation, one transaction.")
class Mutation(IssueMutations, NoteMutations, CommitCommentMutations):
    pass


schema = strawberry.Schema(query=Query, mutation=Mutation, config=StrawberryConfig(scalar_map=SCALARS, disable_field_suggestions=True))
graphql_schema = schema._schema
install(graphql_schema)


def printed() -> str:
    """The schema as `schema.graphql` has it."""
    return schema.as_str() + "\n"

"""Users."""

import strawberry

from graph.context import Info
from graph.declare import Node, column, entity
from storage import tables

UserState = strawberry.enum(tables.UserState, description="Whether a user may use the service.")


@entity(tables.User, description="A person, or a program, with an account.")
class User(Node):
    database_id: int = column(tables.User.id, description="The v3 id.")
    username: str = column(description="The name in mentions and paths, unique without case.")
    name: str = column(description="The full name.")
    state: UserState = column(description="Whether the user may use the service.")  # type: ignore[valid-type]

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/users/{self.id}"

    @strawberry.field(description="The user's picture; null when the instance shows none.")
    def avatar_url(self, info: Info) -> str | None:
        return None


@strawberry.type
class UserQueries:
    @strawberry.field(description="Who asks.")
    async def viewer(self, info: Info) -> User:
        return info.context.viewer  # type: ignore[return-value]

"""Alembic's environment script. `storage.migrations` passes the connection, and begins and ends the transaction."""

from alembic import context

from storage.migrations.rendering import render_item
from storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
    render_item=render_item,
    on_version_apply=context.config.attributes.get("on_version_apply", ()),
)
with context.begin_transaction():
    context.run_migrations()

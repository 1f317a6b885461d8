"""Runs the revisions on the connection that edgeq.store.migrate has opened and locked."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, render_as_batch=True, transaction_per_migration=False)
# The transaction is the caller's: all revisions and the version go in together or not at all.
context.run_migrations()

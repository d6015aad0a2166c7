"""Alembic's scripts: how the schema came to be. Run through `app.adapters.postgres.migrate`."""

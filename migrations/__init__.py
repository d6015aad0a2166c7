"""Alembic's scripts: how the schema came to be. Run through `postgres.session.migrate`."""

"""Notifications in PostgreSQL: channels with their rules, and the outbox."""

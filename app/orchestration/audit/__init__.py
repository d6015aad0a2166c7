"""The audit: an action written in its own transaction, rows sealed, seals verified."""

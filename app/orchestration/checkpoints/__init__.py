"""Committed checkpoints: handed to people, and deleted when they are no longer needed."""

"""Zones of Google Cloud: their lists, types, and machines as they are shown."""

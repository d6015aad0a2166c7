"""The local cloud's process: its machines, its bill, its metadata services."""

"""Calls to hosts that a person names: checked addresses, bounded time, bounded answers."""

"""Notifications: where they may go, what they are about, what they say, when they are tried."""

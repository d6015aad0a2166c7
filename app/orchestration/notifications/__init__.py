"""Notifications: channels and rules of a project, and the controllers that send and watch."""

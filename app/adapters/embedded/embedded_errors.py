"""Errors of the embedded servers and of the process supervisor, each with a next step in its text.

Not here: errors of the domain or of the database driver.
"""

from __future__ import annotations


class EmbeddedServerError(RuntimeError):
    """An embedded server could not be found, prepared, started or stopped."""


class StateFolderUnusableError(EmbeddedServerError):
    """The state folder cannot be made, entered or written in."""


class StateFolderBusyError(RuntimeError):
    """Another process holds the state folder."""


class ChildFailedError(RuntimeError):
    """A supervised process kept failing, so its supervisor gave up."""

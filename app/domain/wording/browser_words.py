"""What a browser is called in the list of sessions, from the name that it sends.

Browsers send the names of several others, too, so the first match in each table counts. It is a
help for the eye: anybody can send any name.
"""

from __future__ import annotations

from typing import Final

_BROWSERS: Final = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS: Final = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip


def browser_words(user_agent: str | None) -> str:
    """ "Firefox on Linux"; as much of it as is known, else "unknown browser"."""
    sent = user_agent or ""
    browser = next((name for mark, name in _BROWSERS if mark in sent), "unknown browser")
    system = next((name for mark, name in _SYSTEMS if mark in sent), None)
    return browser if system is None else f"{browser} on {system}"

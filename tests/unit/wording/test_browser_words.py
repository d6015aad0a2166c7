"""Browsers by name and system in the list of sessions: the first match of what they send."""

from __future__ import annotations

import pytest

from app.domain.wording.browser_words import browser_words

_CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
         "Firefox on Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {_CHROME} Safari/537.36",
         "Chrome on Windows"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {_CHROME} Safari/537.36 Edg/126.0.0.0",
         "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
         "Version/17.5 Safari/605.1.15", "Safari on macOS"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
         "Gecko) CriOS/126.0.0.0 Mobile/15E148 Safari/604.1", "Chrome on iPhone"),
        (f"Mozilla/5.0 (Linux; Android 14) {_CHROME} Mobile Safari/537.36", "Chrome on Android"),
        (f"Mozilla/5.0 (X11; Linux x86_64) {_CHROME.replace('Chrome', 'HeadlessChrome')}",
         "Chrome on Linux"),
        ("curl/8.5.0", "unknown browser"),
        ("<script>", "unknown browser"),
        ("", "unknown browser"),
        (None, "unknown browser"),
    ],
)  # fmt: skip
def test_a_browser_is_called_by_its_name_and_system(sent: str | None, words: str) -> None:
    assert browser_words(sent) == words

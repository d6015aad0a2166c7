"""A real Chromium for tests of the pages, and an eye on what it complains about.

Here: the browser, one page per test, and its complaints. Not here: what the pages are about
(`page_story`), or the served app (`people_api`).
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

# Each window renders two pages for suggestions of its address bar, which nobody sees: half of the
# work. The last such argument counts: what Playwright turns off and matters here is said again.
_FEATURES_OFF = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "AimEnabled",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(_FEATURES_OFF)}",
)
# The headless shell is the same browser without the windows of one: half of the work.
NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
WAIT_MS = 30_000


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """The machine's own Chromium, without a window."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert path is not None, "no Chromium on the PATH; `make browser` installs one"
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """One page of a browser. `complaints`: errors of scripts, refusals of the content policy."""

    context: BrowserContext
    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        """Load a path of the served site."""
        self.page.goto(f"{self.url}{path}", wait_until="load", timeout=WAIT_MS)

    def sign_in(self, key: str) -> None:
        """Through the form, as a person does; ends where signing in leads."""
        if "/sign-in" not in self.page.url:
            self.go("/sign-in")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()

    def signed_in(self, key: str, path: str) -> None:
        """Sign in and load a path.

        Ends when the page has loaded: Chromium gives a link's `#target` its focus only when the
        stylesheets are there, and takes it then from whatever a key press chose before.
        """
        self.go(path)
        self.sign_in(key)
        expect(self.page).to_have_url(re.compile(re.escape(path)))
        self.page.wait_for_load_state("load", timeout=WAIT_MS)

    def overflow_px(self) -> int:
        """By how much the page is wider than the screen."""
        wide: int = self.page.evaluate(
            "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
        )
        return wide

    def assert_content(self) -> None:
        """Nothing was refused and no script failed."""
        assert self.complaints == []


@contextlib.contextmanager
def visit(browser: Browser, url: str, **context_options: Any) -> Iterator[Visit]:
    """A page with cookies of its own. Options are those of Playwright's `new_context`."""
    context = browser.new_context(**{"viewport": WIDE, **context_options})
    context.set_default_timeout(WAIT_MS)
    made = Visit(context, context.new_page(), url)
    made.page.on("console", lambda message: _note(made, message.type, message.text))
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    try:
        yield made
    finally:
        context.close()


def _note(visited: Visit, kind: str, text: str) -> None:
    """Errors and refusals; a status that a test provokes is reported as an error, too."""
    if "Failed to load resource" in text and "status of" in text:
        return
    if kind == "error" or "Content Security Policy" in text:
        visited.complaints.append(text)

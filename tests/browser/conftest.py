"""The served app with its pages, and a real browser that looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.api.people_api import PeopleApi, people_api, settings_for
from tests.support.pages.browser import Visit, open_browser, visit
from tests.support.pages.page_story import PageStory
from tests.support.plugins.folder_scope import shared_by_folder


@dataclass
class Site:
    """A served app, a story to tell in it, and the key that opens it."""

    api: PeopleApi
    story: PageStory

    @property
    def key(self) -> str:
        return self.api.key


# Not for the whole run: while it is open, this thread has an event loop that is running.
@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Browser:
    """The machine's Chromium, for this folder."""
    return shared_by_folder(request, "browser", open_browser)


@pytest.fixture
def site(database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[Site]:
    """The whole app on a database of its own, without workers: nothing moves unless told."""
    settings = settings_for(database_url, valkey_url, tmp_path / "state")
    store = tmp_path / "state" / "store"
    store.mkdir(parents=True, exist_ok=True)
    with people_api(settings) as api:
        yield Site(api, PageStory(api.engine, api.project_id, store))


@pytest.fixture
def look(browser: Browser, site: Site) -> Iterator[Visit]:
    """A fresh browser window; at the end nothing may have been refused or failed."""
    with visit(browser, site.api.url) as made:
        yield made
        made.assert_content()

"""Who may see a page: the project's own people, whatever page is added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi.dependencies.models import Dependant

from app.api.main import create_app
from app.web.page_frame import PageRoute, signed_in

FOR_STRANGERS = {
    "GET /",
    "GET /sign-in",
    "POST /sign-in",
    "POST /sign-out",
    "GET /sign-in/oidc/{issuer}",
    "GET /sign-in/oidc/{issuer}/callback",
    "GET /invitation",
    "POST /invitation",
}


def test_every_page_is_only_for_those_who_have_signed_in() -> None:
    pages = list(_pages(create_app().routes))
    open_pages = {
        f"{method} {page.path}"
        for page in pages
        for method in page.methods or ()
        if not _asks_who_it_is(page.dependant)
    }
    assert len(pages) > 20, "the pages were not found"
    assert open_pages == FOR_STRANGERS, "a page needs a `visitor: SignedIn`"


def _pages(routes: Any) -> Iterator[PageRoute]:
    """Every route of a page, those of included routers, too."""
    for route in routes:
        if isinstance(route, PageRoute):
            yield route
        else:
            yield from _pages(getattr(getattr(route, "original_router", None), "routes", ()))


def _asks_who_it_is(dependant: Dependant) -> bool:
    return any(one.call is signed_in or _asks_who_it_is(one) for one in dependant.dependencies)

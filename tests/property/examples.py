"""How many examples a property gets that needs more, or less, than the usual number of them."""

from __future__ import annotations

from hypothesis import settings

from tests.support.stories.presence import present

_USUAL_IN_FULL = 100


def in_full(count: int) -> int:
    """`count` where the profile has a hundred examples, as in `make test-full`; else its share."""
    return max(1, count * present(settings.default).max_examples // _USUAL_IN_FULL)

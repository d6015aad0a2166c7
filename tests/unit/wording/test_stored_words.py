"""Stored words become the words of the field."""

import pytest

from app.domain.wording.stored_words import stored_words
from app.web import formats


@pytest.mark.parametrize(
    ("stored", "told"),
    [("gang_wait", "gang wait"), ("on_demand", "on-demand"), ("public_ip", "public IP")],
)
def test_a_stored_word_is_told_alike_everywhere(stored: str, told: str) -> None:
    assert stored_words(stored) == formats.words(stored) == told

"""Sentences of the rules as markup: what they put between backticks becomes code.

The same sentences are read in a terminal and over the API, where backticks are the custom.
"""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

_CODE: Final = re.compile(r"`([^`\n]+)`")


def with_code(sentence: str) -> Markup:
    """ "Leave `image` out." → "Leave <code>image</code> out."; anything else is escaped."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(sentence))))


def without_code(sentence: str) -> str:
    """The same sentence for an attribute, which holds no markup."""
    return _CODE.sub(r"\1", sentence)

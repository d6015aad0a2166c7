"""Text that goes into a cell of a spreadsheet and stays text there."""

from __future__ import annotations

import re
from typing import Final

# What spreadsheets take for a formula, also in full width; an amount below zero is none.
_FORMULA: Final = re.compile(r" *([=@+\uff1d\uff20\uff0b\uff0d]|-(?![0-9.]+$))")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def safe_cell(cell: str) -> str:
    """Spreadsheets run cells that begin like a formula; names and labels are people's text.

    A control character, which may begin a new line or cell, becomes a space.
    """
    cell = _CONTROL.sub(" ", cell)
    return f"'{cell}" if _FORMULA.match(cell) else cell

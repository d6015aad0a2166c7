"""A number of bytes for people, in binary units: those of the limits, of GPU memory and egress."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB")


def size_text(size_bytes: int) -> str:
    """3,600,000 → "3.4 MiB"; whole bytes below 1 KiB."""
    if size_bytes < 1_024:
        return f"{size_bytes} B"
    amount = float(size_bytes)
    for unit in _UNITS:
        amount /= 1_024
        # What would be rounded up to 1,024 is one of the larger unit.
        if amount < 1_023.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1_024:,.1f} TiB"

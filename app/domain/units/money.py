"""Money: reading what a person wrote into integer micro-USD, and writing it for people.

One micro-USD is 1e-6 US dollars. No binary float takes part in any arithmetic here. What things
cost is computed in the ledger's modules, not here.
"""

import re
from decimal import Decimal, InvalidOperation

from app.domain.units.errors import InvalidValue

MICROUSD_PER_USD = 1_000_000
_DECIMALS = 6
_TENTH_OF_A_CENT = 1_000
MAX_USD = 1_000_000_000
MAX_MICROUSD = MAX_USD * MICROUSD_PER_USD

_USD_TEXT = re.compile(r"\$?([0-9]{1,10}(?:\.[0-9]{1,6})?)", re.ASCII)
_HOW = "write dollars as 25, 25.50 or $25"


def parse_usd(value: object, *, at_least_microusd: int = 0) -> int:
    """Micro-USD for an amount written as "25", "$25.50", 25, 25.5 or a Decimal.

    A float is read through its shortest decimal text, so 25.1 means exactly 25.10.
    Raises InvalidValue when the value is no amount, is finer than a micro-dollar, is below
    `at_least_microusd` or above one billion dollars.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise InvalidValue(f"must be an amount of money, not {type(value).__name__}; {_HOW}")
    microusd = _microusd(value)
    if microusd < at_least_microusd:
        raise InvalidValue(f"must be at least {format_usd(at_least_microusd)}")
    if microusd > MAX_MICROUSD:
        raise InvalidValue(f"must be at most ${MAX_USD:,}")
    return microusd


def _microusd(value: str | int | float | Decimal) -> int:
    if isinstance(value, int):
        # Not through text: the text of a huge int is slow to make and may be refused by Python.
        if value < 0:
            raise InvalidValue("must not be negative")
        return value * MICROUSD_PER_USD
    text = value.strip() if isinstance(value, str) else str(value)
    if text.lstrip("$").startswith("-"):
        raise InvalidValue("must not be negative")
    if isinstance(value, float) and value >= MAX_USD:
        raise InvalidValue(f"must be at most ${MAX_USD:,}")
    match = _USD_TEXT.fullmatch(text)
    if match is None:
        raise InvalidValue(f"is not an amount of money with at most 6 decimals; {_HOW}")
    return int(Decimal(match[1]) * MICROUSD_PER_USD)


def price_microusd(usd: object) -> int:
    """Micro-USD of a price as a cloud writes it, "0.306000", rounded half to even.

    Raises InvalidValue for what is no price: no number, not finite, negative, or beyond any price.
    """
    try:
        price = Decimal(str(usd))
    except InvalidOperation:
        raise InvalidValue(f"is {usd!r}, which is no number") from None
    if not price.is_finite() or price < 0 or price > MAX_USD:
        raise InvalidValue(f"is {usd!r}, which cannot be a price")
    return round(price * MICROUSD_PER_USD)


def usd_text(microusd: int) -> str:
    """The exact amount as the shortest decimal text with at least two decimals: "25.00", "0.918".

    `parse_usd(usd_text(m)) == m` for every m from 0 to the maximum.
    """
    sign = "-" if microusd < 0 else ""
    dollars, fraction = divmod(abs(microusd), MICROUSD_PER_USD)
    decimals = f"{fraction:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{dollars}.{decimals}"


def short_usd(microusd: int) -> str:
    """For people: cents from a dollar on, below it tenths of a cent, so that small bills show.

    0 → "$0.00", 918_000 → "$0.918", 12_345_678 → "$12.35". An amount that is not zero never looks
    like zero: below a tenth of a cent it is "<$0.001".
    """
    if 0 < abs(microusd) < _TENTH_OF_A_CENT:
        return "<$0.001" if microusd > 0 else ">-$0.001"
    return format_usd(microusd, 3 if 0 < abs(microusd) < MICROUSD_PER_USD else 2)


def format_usd(microusd: int, places: int = 2) -> str:
    """For people: "$1,800.00", "-$0.46". Rounded half to even at `places` decimals (0 to 6).

    An amount that rounds to zero is written without a sign.
    """
    if not 0 <= places <= 6:
        raise ValueError(f"places must be 0 to 6, not {places}")
    steps, rest = divmod(abs(microusd), 10 ** (_DECIMALS - places))
    doubled = 2 * rest - 10 ** (_DECIMALS - places)
    if doubled > 0 or (doubled == 0 and steps % 2):
        steps += 1
    sign = "-" if microusd < 0 and steps else ""
    dollars, fraction = divmod(steps, 10**places)
    return f"{sign}${dollars:,}" + (f".{fraction:0{places}d}" if places else "")

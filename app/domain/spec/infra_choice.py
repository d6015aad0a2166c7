"""Where a job may run, as a person writes it: "aws", "gcp/us-central1", "aws/us-east-1/us-east-1a".

Only the wish lives here; matching it with pools is placement's question.
"""

import difflib
import re
from dataclasses import dataclass

from app.domain.units.errors import InvalidValue

KNOWN_PROVIDERS = ("aws", "gcp", "local")
MAX_INFRA_CHOICES = 64

_PLACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?", re.ASCII)
_HOW = "write aws, gcp/us-central1 or aws/us-east-1/us-east-1a"


@dataclass(frozen=True, slots=True)
class InfraChoice:
    """One acceptable place; None means any region, or any zone of the region."""

    provider: str
    region: str | None = None
    zone: str | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.provider, self.region, self.zone) if part)


def parse_infra_choices(value: object) -> tuple[InfraChoice, ...]:
    """The acceptable places from one text or a list of texts, sorted: their order means nothing.

    Raises InvalidValue when empty, too many, written twice, of an unknown provider or unreadable.
    """
    texts = list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(texts) <= MAX_INFRA_CHOICES:
        raise InvalidValue(f"must name 1 to {MAX_INFRA_CHOICES} places; {_HOW}")
    choices = tuple(_parse_one(text) for text in texts)
    if len(set(choices)) != len(choices):
        raise InvalidValue("names the same place twice; keep one of them")
    return tuple(sorted(choices, key=str))


def _parse_one(text: object) -> InfraChoice:
    if not isinstance(text, str):
        raise InvalidValue(f"must be text; {_HOW}")
    provider, *places = text.strip().split("/")
    if provider not in KNOWN_PROVIDERS:
        near = difflib.get_close_matches(provider[:64].lower(), KNOWN_PROVIDERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(KNOWN_PROVIDERS)
        raise InvalidValue(
            f"{provider[:40]!r} is not a cloud that Lowtide can rent from; write one of "
            f"{known}, as in gcp/us-central1{hint}"
        )
    if len(places) > 2 or any(_PLACE.fullmatch(place) is None for place in places):
        raise InvalidValue(f"{text[:80]!r} is not a place; {_HOW}")
    return InfraChoice(provider, *places)

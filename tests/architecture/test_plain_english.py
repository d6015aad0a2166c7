"""Idioms that readers stumbled over stay out of the docs and of every sentence of the product."""

import re
from collections.abc import Iterator

from tests.support.sources.source_tree import ROOT, strings_of

INSTEAD = {
    r"\bborne out\b": "accurate",
    r"\bdearer\b": "more expensive",
    r"\bat hand\b": "available; current",
    r"\bcan(not)? be had\b|\bcould be had\b": "is available",
    r"\bbe it\b": "even if",
    r"\bmore seldom\b": "less often",
    r"\b(same|other) dice\b": "random seed",
    r"\bprogress costs\b": "per hour of training",
    r"\bcarry what is needed\b": "fit",
    r"\bstands here\b": "appears here",
    r"\bNo wait, but\b": "Waiting will not help",
    r"\bmakes? way\b": "stops; is replaced",
    r"\bbears? (no|both|two|on-demand)\b": "covers; allows",
    r"\b(nobody|somebody) can\b": "name who; use the passive",
    r"\bthe very (step|same)\b|\b(that|this) very\b": "that",
    r"\bgiven back\b|\bgives? (its|the) machines back\b": "released",
}
"""Regular expression: what to write instead."""


def _texts() -> Iterator[tuple[str, str]]:
    """(where, line of text) of all that people read."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "app").rglob("*.html")]
    for page in pages:
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{page.relative_to(ROOT)}:{number}", line
    for folder in ("app", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            if "simulation" not in path.parts:
                for number, text in strings_of(path):
                    yield f"{path.relative_to(ROOT)}:{number}", text


def test_no_odd_idiom_is_read_by_anybody():
    found = [
        f"{where}: {match[0]!r}; write: {instead}"
        for where, text in _texts()
        for idiom, instead in INSTEAD.items()
        if (match := re.search(idiom, text))
    ]
    assert found == []

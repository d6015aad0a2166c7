"""The rules of a project for people: fields as their file writes them, and values as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from app.domain.launch_limits.launch_limits import LaunchLimits
from app.domain.projects.project_rules import Ceilings, ProjectRules
from app.domain.projects.resolve_spec import SpecSource

SOURCE_WORDS: Final[Mapping[str, str]] = {
    SpecSource.DEFAULT: "the project's default",
    SpecSource.RULE: "what the project allows",
}
"""Where a field of a job's spec comes from that its author left out."""


_ORDER: Final = {
    field: rank
    for rank, field in enumerate(
        [
            *ProjectRules.model_fields,
            *(f"ceilings.{info.alias or name}" for name, info in Ceilings.model_fields.items()),
            *(f"limits.{info.alias or name}" for name, info in LaunchLimits.model_fields.items()),
        ]
    )
}


def rule_lines(document: Mapping[str, object], path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted field, value) of stored rules, in the order of their fields, not of the store."""
    for name in sorted(document, key=lambda name: (_ORDER.get(f"{path}{name}", 0), name)):
        field, value = f"{path}{name}", document[name]
        if isinstance(value, Mapping):
            yield from rule_lines(value, f"{field}.")
        else:
            yield field, rule_value(field, value)


def rule_value(field: str, value: object) -> str:
    """One value as text: lists by commas; a required label without values takes any."""
    if isinstance(value, list | tuple):
        any_value = "any value" if field.startswith("required_labels.") else "nothing"
        return ", ".join(map(str, value)) or any_value
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_money = field.endswith("_usd")
    return f"${value}" if is_money else str(value)

"""The stored form of a project's rules: JSON, in the words of their file, without what is left out.

What a key means is said once, at the field of `project_rules.ProjectRules` that has this name or
this alias; `read_rules.parse_rules` reads the document.
"""

from __future__ import annotations

from typing import TypedDict

from app.domain.launch_limits.launch_limits import LimitsDocument
from app.domain.spec.spec_document import SpecDocument


class CeilingsDocument(TypedDict, total=False):
    """The most that one job may ask for; `budget_usd` as 25.50, `max_duration` as 36h."""

    nodes: int
    gpus: int
    priority: int
    budget_usd: str
    max_duration: str
    retries: int
    max_price_ratio: float
    disk: str


class RulesDocument(TypedDict, total=False):
    """All rules of a project. `required_labels`: the allowed values by label, none for any."""

    required_labels: dict[str, list[str]]
    infra: list[str]
    regions: list[str]
    markets: list[str]
    gpu_models: list[str]
    defaults: SpecDocument
    ceilings: CeilingsDocument
    limits: LimitsDocument
    secret_prefixes: list[str]
    secret_account: str

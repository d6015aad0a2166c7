"""Limits of a project or of the deployment: how many machines and GPUs, at what price an hour.

Lives here: the fields, how each is read, and its document. Not here: what machines hold of them
(`limit_use`), or the most that one job may ask for (`projects.project_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict, cast

from pydantic import Field, ValidationError

from app.domain.market.gpu_choice import MAX_GPU_CHOICES, parse_gpu_choice
from app.domain.market.offer import Hardware
from app.domain.spec.job_spec_problems import spec_error
from app.domain.spec.job_spec_values import Budget
from app.domain.spec.spec_value import SpecModel, Written, kind_of, refusal
from app.domain.units.errors import SpecError

COUNT_MAX: Final = 1_000_000
_ALL: Final = "all"


class LimitsDocument(TypedDict, total=False):
    """The stored form, without what is not limited; money as 25.50."""

    machines: int
    gpus: dict[str, int]
    max_hourly_spend_usd: str
    queued_jobs: int


@dataclass(frozen=True, slots=True, order=True)
class GpuLimit:
    """The most GPUs of a model. name: "" for all models; memory_gb: None for all variants."""

    name: str
    memory_gb: int | None
    most: int

    @property
    def model(self) -> str:
        """As limits write it: `all`, `V100`, `A100:80GB`."""
        if not self.name:
            return _ALL
        return self.name if self.memory_gb is None else f"{self.name}:{self.memory_gb}GB"

    def counts(self, hardware: Hardware) -> int:
        """How many GPUs of such a machine it limits."""
        named = self.name in ("", hardware.gpu_name)
        alike = named and self.memory_gb in (None, hardware.gpu_memory_gb)
        return hardware.gpu_count if alike else 0


def _read_gpus(value: object) -> tuple[GpuLimit, ...]:
    """A number limits all models together; a mapping each by itself, `all` among them."""
    written = value if isinstance(value, Mapping) else {_ALL: value}
    if not 1 <= len(written) <= MAX_GPU_CHOICES:
        raise refusal(f"must name 1 to {MAX_GPU_CHOICES} models, like {{V100: 8, all: 32}}")
    found = [_gpu_limit(name, most) for name, most in written.items()]
    if len({one.model for one in found}) != len(found):
        raise refusal("names the same model twice; keep one of them")
    return tuple(sorted(found, key=lambda one: one.model))


def _gpu_limit(model: object, most: object) -> GpuLimit:
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= COUNT_MAX:
        wrong = f"must be a number of GPUs or a mapping like {{V100: 8}}, not {kind_of(most)}"
        raise refusal(wrong if model == _ALL else f"{str(model)[:40]!r} {wrong}")
    if model == _ALL:
        return GpuLimit("", None, most)
    choice = parse_gpu_choice(model)
    if choice.name is None or choice.count != 1:
        raise refusal(f"{str(model)[:40]!r} is not a model; write V100, A100:80GB or all")
    return GpuLimit(choice.name, choice.memory_gb, most)


_GPUS_FORM: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    ],
    "examples": [32, {"V100": 8, "all": 32}],
}
Gpus = Annotated[
    tuple[GpuLimit, ...],
    Written(_read_gpus, _GPUS_FORM, lambda found: {one.model: one.most for one in found}),
]


class LaunchLimits(SpecModel):
    """The most that all machines together may be; None: as many as there are.

    max_hourly_spend_microusd: what they cost an hour, at the prices of now. queued_jobs: that have
    not started yet; more are not accepted.
    """

    machines: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    gpus: Gpus | None = None
    max_hourly_spend_microusd: Budget | None = Field(default=None, alias="max_hourly_spend_usd")
    queued_jobs: int | None = Field(default=None, ge=0, le=COUNT_MAX)

    def to_json(self) -> LimitsDocument:
        """The stored form, and that of answers: without what is left out."""
        return cast(LimitsDocument, self.model_dump(mode="json", by_alias=True, exclude_none=True))


NO_LIMITS: Final = LaunchLimits()


def parse_limits(data: object) -> LaunchLimits:
    """The limits from parsed JSON or YAML, or from `to_json`.

    Raises SpecError listing every field that is wrong or unknown.
    """
    if not isinstance(data, Mapping):
        raise SpecError.of(f"limits must be a mapping of fields, not {kind_of(data)}")
    try:
        return LaunchLimits.model_validate(dict(data))
    except ValidationError as error:
        raise spec_error(error, {"": LaunchLimits}) from error

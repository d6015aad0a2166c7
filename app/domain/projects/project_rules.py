"""The rules of a project: what its jobs must have, where they may run, what they get and may ask.

Lives here: the fields, and how each is read. Not here: reading them all (`read_rules`), what they
make of a job's spec (`resolve_spec`), or who may change them (`app.domain.access`).
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Self, cast

from pydantic import Field, model_validator

from app.domain.deployment.cloud_secrets import KNOWN, CloudSecretName, read_cloud_name
from app.domain.launch_limits.launch_limits import NO_LIMITS, LaunchLimits
from app.domain.market.gpu_choice import MAX_GPU_CHOICES, GpuChoice, parse_gpu_choice
from app.domain.market.offer import Market
from app.domain.projects.rules_document import RulesDocument
from app.domain.spec.infra_choice import KNOWN_PROVIDERS, MAX_INFRA_CHOICES, InfraChoice
from app.domain.spec.job_spec_machine import DiskSize
from app.domain.spec.job_spec_values import Budget, NodeCount, Places, read_labels
from app.domain.spec.spec_value import SpecModel, Written, duration, kind_of, refusal
from app.domain.units.errors import InvalidValue

PROJECTS_MAX: Final = 1_000
"""So many are listed, and named by a file."""

GPUS_MAX: Final = 1_024
_LABELS_MAX: Final = 16
_VALUES_MAX: Final = 64
_REGIONS_MAX: Final = 16
_PREFIXES_MAX: Final = 32
_MARKETS: Final = tuple(market.value for market in Market)
# Source: IAM API, projects.serviceAccounts.create, `accountId`, and the e-mail that is made of it.
_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,63}@[a-z0-9.:-]{1,200}\.gserviceaccount\.com", re.ASCII)
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{1,62}[a-z0-9]", re.ASCII)
# How clouds name regions; the local cloud has the names of both.
_REGION_FORMS: Final = {
    "aws": re.compile(r"[a-z]{2,3}(?:-[a-z]+)+-[0-9]+", re.ASCII),
    "gcp": re.compile(r"[a-z]+-[a-z]+[0-9]+", re.ASCII),
}


def _read_labels(value: object) -> dict[str, tuple[str, ...]]:
    """Label names with the values that are allowed; none: any value. A list names labels alone."""
    if isinstance(value, list | tuple):
        value = {name: [] for name in value} if all(isinstance(n, str) for n in value) else None
    if not isinstance(value, dict):
        raise refusal("must be a list of labels, or a mapping like {team: [vision, speech]}")
    if len(value) > _LABELS_MAX:
        raise refusal(f"must name at most {_LABELS_MAX} labels, not {len(value)}")
    return {str(name): _label_values(name, values) for name, values in sorted(value.items())}


def _label_values(name: object, values: object) -> tuple[str, ...]:
    listed = [values] if isinstance(values, str) else [] if values is None else values
    if not isinstance(listed, list | tuple) or len(listed) > _VALUES_MAX:
        most = f"a list of at most {_VALUES_MAX} values"
        raise refusal(f"{str(name)[:40]!r} must have {most}, not {kind_of(values)}")
    # A label of a job is read alike, and so is its name where any value will do.
    found = {text for one in listed or ["any"] for text in read_labels({name: one}).values()}
    return tuple(sorted(found)) if listed else ()


def _read_markets(value: object) -> tuple[Market, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed:
        raise refusal(f"must list one or both of {', '.join(_MARKETS)}")
    words = ["on_demand" if one == "on-demand" else one for one in listed]
    unknown = next((one for one in words if one not in _MARKETS), None)
    if unknown is not None:
        raise refusal(f"{str(unknown)[:40]!r} is not a market; known: {', '.join(_MARKETS)}")
    return tuple(market for market in Market if market.value in words)


def _read_gpus(value: object) -> tuple[GpuChoice, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not 1 <= len(listed) <= MAX_GPU_CHOICES:
        raise refusal(f"must list 1 to {MAX_GPU_CHOICES} models, like [V100, 'A100:80GB']")
    choices = tuple(parse_gpu_choice(one) for one in listed)
    for written, choice in zip(listed, choices, strict=True):
        if choice.name is None or choice.count != 1:
            raise refusal(f"{str(written)[:40]!r} is not a model; write V100 or A100:80GB")
    if len(set(choices)) != len(choices):
        raise refusal("names the same model twice; keep one of them")
    return tuple(sorted(choices, key=str))


def _read_regions(value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not 1 <= len(listed) <= _REGIONS_MAX:
        raise refusal(f"must list 1 to {_REGIONS_MAX} regions, like [us-east-1, europe-west4]")
    for one in listed:
        if not isinstance(one, str) or _REGION.fullmatch(one) is None:
            raise refusal(f"{str(one)[:40]!r} is not a region; write us-east-1, without its cloud")
    return tuple(sorted(set(listed)))


def _read_prefixes(value: object) -> tuple[CloudSecretName, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or len(listed) > _PREFIXES_MAX:
        raise refusal(f"must list at most {_PREFIXES_MAX} prefixes, like ['aws-sm:vision/']")
    return tuple(sorted({_read_prefix(one) for one in listed}, key=str))


def _read_prefix(written: object) -> CloudSecretName:
    if isinstance(written, CloudSecretName):
        return written
    if not isinstance(written, str):
        raise refusal(f"must list texts that begin with {' or '.join(KNOWN)}")
    try:
        return read_cloud_name(written)
    except InvalidValue as error:
        raise refusal(f"{written[:80]!r} {error.message}") from error


def _read_account(value: object) -> str:
    if not isinstance(value, str) or _ACCOUNT.fullmatch(value) is None:
        raise refusal(
            "must be the e-mail of a service account, like NAME@PROJECT.iam.gserviceaccount.com"
        )
    return value


def gpu_model_text(choice: GpuChoice) -> str:
    """A model as rules write it: `V100`, or `A100:80GB` for one variant."""
    return f"{choice.name}" + ("" if choice.memory_gb is None else f":{choice.memory_gb}GB")


_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_LABELS_FORM: Final = {
    "anyOf": [_TEXTS, {"type": "object", "additionalProperties": _TEXTS}],
    "examples": [["team"], {"team": ["vision", "speech"]}],
}

RequiredLabels = Annotated[
    dict[str, tuple[str, ...]],
    Written(_read_labels, _LABELS_FORM, lambda found: {k: list(v) for k, v in found.items()}),
]
Markets = Annotated[
    tuple[Market, ...],
    Written(_read_markets, _TEXTS, lambda markets: [one.value for one in markets]),
]
GpuModels = Annotated[
    tuple[GpuChoice, ...],
    Written(_read_gpus, _TEXTS, lambda choices: [gpu_model_text(one) for one in choices]),
]
Regions = Annotated[tuple[str, ...], Written(_read_regions, _TEXTS, list)]
SecretPrefixes = Annotated[
    tuple[CloudSecretName, ...],
    Written(_read_prefixes, _TEXTS, lambda prefixes: [str(one) for one in prefixes]),
]
SecretAccount = Annotated[str, Written(_read_account, {"type": "string"})]


class Ceilings(SpecModel):
    """The most that one job may ask for; None: as much as Lowtide takes.

    gpus: machines times GPUs of each, of a gang at full size. budget_microusd,
    max_duration_seconds: a job must then set both itself, or get them from the defaults.
    disk_gb: `resources.disk`.
    """

    nodes: NodeCount | None = None
    gpus: int | None = Field(default=None, ge=1, le=GPUS_MAX)
    priority: int | None = Field(default=None, ge=0, le=100)
    budget_microusd: Budget | None = Field(default=None, alias="budget_usd")
    max_duration_seconds: Annotated[int, duration(1)] | None = Field(
        default=None, alias="max_duration"
    )
    retries: int | None = Field(default=None, ge=0, le=100)
    max_price_ratio: float | None = Field(default=None, gt=0, le=2)
    disk_gb: DiskSize | None = Field(default=None, alias="disk")


class ProjectRules(SpecModel):
    """Everything that a project says of its jobs; what is left out is not limited.

    required_labels: by label, the allowed values; none: any. infra, regions: where jobs may run;
    with both, in those regions of those places. defaults: parts of a job's spec, in its normal
    form, for jobs that leave them out. limits: of all machines together; the other rules are of
    each new job. secret_prefixes: which secrets of clouds its jobs may name. secret_account: the
    service account that reads those of Google.
    """

    required_labels: RequiredLabels = Field(default_factory=dict)
    infra: Places | None = None
    regions: Regions | None = None
    markets: Markets | None = None
    gpu_models: GpuModels | None = None
    defaults: dict[str, object] = Field(default_factory=dict)
    ceilings: Ceilings = Ceilings()
    limits: LaunchLimits = NO_LIMITS
    secret_prefixes: SecretPrefixes = ()
    secret_account: SecretAccount | None = None

    @model_validator(mode="after")
    def _regions_of_places(self) -> Self:
        if self.regions is not None and not 1 <= len(self.places) <= MAX_INFRA_CHOICES:
            raise refusal("names no region of a place in infra, or too many", "regions")
        return self

    @property
    def places(self) -> tuple[InfraChoice, ...]:
        """Where jobs may run, from `infra` and `regions`; none: anywhere."""
        infra = self.infra
        if self.regions is None:
            return infra or ()
        found: set[InfraChoice] = set()
        for place in infra or tuple(InfraChoice(provider) for provider in KNOWN_PROVIDERS):
            if place.region is not None:
                found |= {place} if place.region in self.regions else set()
                continue
            form = _REGION_FORMS.get(place.provider)
            found |= {
                InfraChoice(place.provider, region)
                for region in self.regions
                if form is None or form.fullmatch(region)
            }
        return tuple(sorted(found, key=str))

    def to_json(self) -> RulesDocument:
        """The stored form, and that of answers: without what is left out."""
        found = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        kept = {name: value for name, value in found.items() if value not in ({}, [])}
        return cast(RulesDocument, kept)


NO_RULES: Final = ProjectRules()

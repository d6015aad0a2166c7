"""A job's spec under the rules of its project: what they add, and what they refuse.

Lives here: the one function that every submission, check and estimate asks. What an author writes
is kept or refused, never changed; what is left out comes from the project, and the result says so.
The spec carries every restriction itself, so that later decisions about the job keep to it. Not
here: the rules' own fields (`project_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.domain.lifecycle.stored_documents import SpecSourcesDocument
from app.domain.market.gpu_catalog import models_of
from app.domain.market.gpu_choice import MAX_GPU_CHOICES, GpuChoice
from app.domain.market.offer import Market
from app.domain.placement.placement import gpu_memory_gb_min
from app.domain.projects.project_rules import ProjectRules, gpu_model_text
from app.domain.projects.spec_defaults import section_of, with_defaults
from app.domain.spec.infra_choice import InfraChoice
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.durations import duration_text
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem
from app.domain.units.money import format_usd


class SpecSource(StrEnum):
    """Where a field of a job's spec comes from that its author left out. Values are stored."""

    DEFAULT = "project_default"
    """The project's defaults."""
    RULE = "project_rule"
    """What the project allows: its places, markets or GPUs."""


SpecSources = Mapping[str, SpecSource]
"""Dotted fields that are not the author's, as `budget_usd` or `labels.team`."""


@dataclass(frozen=True)
class ResolvedSpec:
    """A spec as it is stored, as it was written, and which of its fields the project has given.

    rules_version: the number of the project's rules; 0 for none.
    """

    spec: JobSpec
    written: JobSpec
    sources: SpecSources
    rules_version: int = 0

    def sources_json(self) -> SpecSourcesDocument | None:
        """What is stored of the sources; None where everything is the author's."""
        if not self.sources:
            return None
        fields = {field: source.value for field, source in sorted(self.sources.items())}
        return {"rules_version": self.rules_version, "fields": fields}


def as_written(spec: JobSpec) -> ResolvedSpec:
    """The spec of a project without rules. Raises SpecError for credentials without an image."""
    problems = [*_without_image(spec)]
    if problems:
        raise SpecError(problems)
    return ResolvedSpec(spec, spec, {})


_MARKETS_OF: Final[Mapping[str, tuple[Market, ...]]] = {
    "spot": (Market.SPOT,),
    "on_demand": (Market.ON_DEMAND,),
    "auto": (Market.SPOT, Market.ON_DEMAND),
}


def resolve_spec(
    rules: ProjectRules, project: str, written: JobSpec, rules_version: int = 1
) -> ResolvedSpec:
    """The spec with what the rules add. project: its name, for sentences.

    Resolving what was resolved changes nothing. Raises SpecError with everything that the rules
    refuse.
    """
    spec = written
    document, taken = with_defaults(spec, rules.defaults)
    sources = dict.fromkeys(taken, SpecSource.DEFAULT)
    if taken:
        try:
            spec = parse_spec(document)
        except SpecError as error:
            raise SpecError([*error.problems, _defaults_told(project, taken)]) from error
    added = dict(_restrictions(rules, spec))
    if added:
        sources |= dict.fromkeys(added, SpecSource.RULE)
        spec = parse_spec(_put_in(spec.to_written_json(), added))
    problems = [
        *_without_image(spec), *_labels(rules, project, spec), *_refused(rules, project, spec),
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)
    return ResolvedSpec(spec, written, sources, rules_version)


def require_budget(rules: ProjectRules, project: str, cap_microusd: int, field: str) -> None:
    """Raises SpecError for a cap that a job gets later and its project does not allow."""
    most = rules.ceilings.budget_microusd
    if most is None or cap_microusd <= most:
        return
    raise SpecError(
        [
            _refusal(
                field,
                f"with it the budget would be {format_usd(cap_microusd)}: the project {project!r} "
                f"allows at most {format_usd(most)} (ceilings.budget_usd); add less",
            )
        ]
    )


def _without_image(spec: JobSpec) -> Iterator[SpecProblem]:
    """Credentials of an image that neither the author nor the project has named."""
    if spec.image_secret is not None and spec.image is None:
        told = "image_secret: has the credentials for an `image`; name one, or remove it"
        yield SpecProblem("image_secret", told)


def refused_fields(rules: ProjectRules, spec: JobSpec) -> frozenset[str]:
    """The fields of a spec whose values the rules refuse; what is missing is not among them."""
    found = [*_labels(rules, "", spec), *_refused(rules, "", spec)]
    return frozenset(one.field for one in found if one.kind is ProblemKind.NOT_ALLOWED)


def _restrictions(rules: ProjectRules, spec: JobSpec) -> Iterator[tuple[str, object]]:
    """What an author left open and the project does not, as (field, its written value)."""
    if rules.places and spec.infra is None:
        yield "infra", [str(place) for place in rules.places]
    markets, asked = rules.markets or (), _MARKETS_OF[spec.effective_market()]
    if spec.market is None and len(markets) == 1 and markets != asked:
        yield "market", markets[0].value
    if not spec.gpu_choices and (rules.gpu_models or rules.ceilings.gpus is not None):
        choices = _gpus_for(rules, spec)
        if choices:
            yield "resources.gpu", [str(choice) for choice in choices]


def _gpus_for(rules: ProjectRules, spec: JobSpec) -> Sequence[GpuChoice]:
    """One GPU of each allowed model that has the memory which the work needs."""
    needed_gb = gpu_memory_gb_min(spec)
    if rules.gpu_models is None:
        return [GpuChoice(None, max(1, needed_gb))]
    found = {
        GpuChoice(model.name, model.memory_gb)
        for allowed in rules.gpu_models
        for model in models_of(allowed.name or "")
        if allowed.memory_gb in (None, model.memory_gb) and model.memory_gb >= needed_gb
    }
    return sorted(found, key=lambda choice: (choice.memory_gb or 0, str(choice)))[:MAX_GPU_CHOICES]


def _put_in(document: Mapping[str, object], added: Mapping[str, object]) -> dict[str, object]:
    merged = dict(document)
    for field, value in added.items():
        section, _, name = field.rpartition(".")
        if section:
            merged[section] = {**section_of(merged, section), name: value}
        else:
            merged[name] = value
    return merged


def _labels(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    for name, values in rules.required_labels.items():
        field, given = f"labels.{name}", spec.labels.get(name)
        if given is None:
            one_of = f", one of {', '.join(values)}" if values else ""
            yield _refusal(
                field,
                f"is required by the project {project!r} (required_labels); write "
                f"`labels: {{{name}: …}}`{one_of}",
                ProblemKind.MISSING,
            )
        elif values and given not in values:
            yield _refusal(
                field,
                f"{given[:60]!r} is not allowed in the project {project!r} "
                f"(required_labels.{name}); use one of {', '.join(values)}",
            )


def _refused(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    """What the author wrote, or the defaults give, and the project does not allow."""
    yield from _places_refused(rules, project, spec)
    yield from _markets_refused(rules, project, spec)
    yield from _gpus_refused(rules, project, spec)
    yield from _ceilings_broken(rules, project, spec)


def _places_refused(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    places = rules.places
    for place in spec.infra or ():
        if places and not any(_within(place, allowed) for allowed in places):
            rule = "regions" if rules.infra is None else "infra"
            listed = ", ".join(str(one) for one in places)
            yield _refusal(
                "infra",
                f"{place} is not within what the project {project!r} allows ({rule}: {listed}); "
                "name some of these, or leave `infra` out",
            )


def _within(place: InfraChoice, allowed: InfraChoice) -> bool:
    return (
        place.provider == allowed.provider
        and allowed.region in (None, place.region)
        and allowed.zone in (None, place.zone)
    )


def _markets_refused(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    allowed, asked = rules.markets, spec.effective_market()
    if allowed is not None and not set(_MARKETS_OF[asked]) <= set(allowed):
        only = " and ".join(market.value for market in allowed)
        yield _refusal(
            "market",
            f"{asked} is not allowed in the project {project!r} (markets: {only}); "
            "write one of these, or leave `market` out",
        )


def _gpus_refused(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    models = rules.gpu_models
    if models is None:
        return
    listed = ", ".join(gpu_model_text(one) for one in models)
    allows = f"the project {project!r} allows (gpu_models: {listed})"
    if not spec.gpu_choices:
        yield _refusal(
            "resources.gpu",
            f"the work needs a GPU with {gpu_memory_gb_min(spec)} GB, which is more than any that "
            f"{allows} has",
        )
    for choice in spec.gpu_choices:
        if not any(
            choice.name == model.name and model.memory_gb in (None, choice.memory_gb)
            for model in models
        ):
            yield _refusal(
                "resources.gpu",
                f"{choice} is not within what {allows}; name some of these, or leave the field out",
            )


@dataclass(frozen=True)
class _Ceiling:
    """One figure of a job and its ceiling. asked: None where the job leaves it open."""

    field: str
    rule: str
    asked: float | None
    most: float | None
    text: Callable[[Any], str] = str


def _ceilings(rules: ProjectRules, spec: JobSpec) -> Iterator[_Ceiling]:
    most, nodes = rules.ceilings, spec.nodes.most
    duration = spec.max_duration_seconds
    # A disk that is left out has the deployment's size, which no job chooses.
    disk = spec.resources.disk_gb or 0
    yield _Ceiling("nodes", "nodes", nodes, most.nodes)
    yield _Ceiling("resources.gpu", "gpus", nodes * spec.gpus_per_node, most.gpus, _gpus_text)
    yield _Ceiling("priority", "priority", spec.priority, most.priority)
    yield _Ceiling("retries", "retries", spec.retries, most.retries)
    ratio = spec.max_price_ratio
    yield _Ceiling("max_price_ratio", "max_price_ratio", ratio, most.max_price_ratio)
    budget = spec.budget_microusd
    yield _Ceiling("budget_usd", "budget_usd", budget, most.budget_microusd, format_usd)
    longest = most.max_duration_seconds
    yield _Ceiling("max_duration", "max_duration", duration, longest, duration_text)
    yield _Ceiling("resources.disk", "disk", disk, most.disk_gb, "{}GB".format)


def _gpus_text(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs in all"


def _ceilings_broken(rules: ProjectRules, project: str, spec: JobSpec) -> Iterator[SpecProblem]:
    for one in _ceilings(rules, spec):
        if one.most is None or (one.asked is not None and one.asked <= one.most):
            continue
        most = one.text(one.most)
        allowed = f"the project {project!r} allows at most {most} (ceilings.{one.rule})"
        if one.asked is None:
            yield _refusal(
                one.field, f"is required: {allowed}; write that or less", ProblemKind.MISSING
            )
        else:
            yield _refusal(one.field, f"{one.text(one.asked)} is too much: {allowed}")


def _defaults_told(project: str, taken: Sequence[str]) -> SpecProblem:
    """Beside problems of a spec that the defaults have a part in."""
    given = ", ".join(f"`{field}`" for field in taken)
    return SpecProblem("", f"the project {project!r} has added {given} from its defaults")


def _refusal(field: str, sentence: str, kind: ProblemKind = ProblemKind.NOT_ALLOWED) -> SpecProblem:
    return SpecProblem(field, f"{field}: {sentence}", kind)

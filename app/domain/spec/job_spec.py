"""JobSpec: what a user asks for. The API's body, the stored JSON and this model are one shape.

Every rule about a spec's fields is here or in job_spec_fields and job_spec_values. Not here: the
text's own bounds (spec_text), and what needs the world to judge: the project's limits, whether a
packed folder was uploaded, whether an offer fits.
"""

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.machine_need import MachineNeed
from app.domain.spec.job_spec_fields import Checkpoint, Estimate, Resources, Trainer
from app.domain.spec.job_spec_machine import Image, Inputs, InstanceTypes, Outputs, check_folders
from app.domain.spec.job_spec_problems import Sections, spec_error
from app.domain.spec.job_spec_secrets import SecretName, Secrets
from app.domain.spec.job_spec_values import (
    Budget,
    ChannelNames,
    Deadline,
    Environment,
    ExitCodes,
    JobName,
    KeptSeconds,
    Labels,
    Market,
    Nodes,
    Places,
    Workdir,
)
from app.domain.spec.node_range import NodeRange
from app.domain.spec.spec_document import SpecDocument, TrainerDocument
from app.domain.spec.spec_value import (
    SpecModel,
    duration,
    kind_of,
    later,
    one_of,
    refusal,
    text,
)
from app.domain.units.errors import ProblemKind, SpecError
from app.domain.units.instants import format_instant
from trainer.protocol.run_config import TRAINING_DATA_INPUT, SecretUse

MAX_DEADLINE_AHEAD = timedelta(days=3_650)
_MAX_SCRIPT = 32_768


class JobSpec(SpecModel):
    """One job as the user asked for it, immutable. Made by `parse_spec`.

    Fields named in seconds or micro-USD are written under another name: `stall_timeout: 15m` is
    `stall_timeout_seconds == 900`, `budget_usd: 25` is `budget_microusd == 25_000_000`. Fields
    marked `later` are always None: they are known, and refused as not available yet.
    """

    name: JobName | None = None
    project: JobName | None = None
    priority: int = Field(default=50, ge=0, le=100)
    trainer: Trainer | None = None
    run: Annotated[str, text(_MAX_SCRIPT, lines=True)] | None = None
    workdir: Workdir | None = None
    setup: Annotated[str, text(_MAX_SCRIPT, lines=True)] | None = None
    nodes: Nodes = NodeRange(1, 1)
    resources: Resources = Resources()
    market: Market | None = None
    infra: Places | None = None
    max_price_ratio: float = Field(
        default=0.9, gt=0, le=2, description="Share of the on-demand price"
    )
    deadline: Deadline | None = None
    on_deadline: Annotated[str, one_of("on_deadline", ("finish", "stop"))] = "finish"
    estimate: Estimate | None = None
    budget_microusd: Budget | None = Field(default=None, alias="budget_usd")
    max_duration_seconds: Annotated[int, duration(1)] | None = Field(
        default=None, alias="max_duration"
    )
    max_wait_seconds: Annotated[int, duration(1)] | None = Field(default=None, alias="max_wait")
    patience_seconds: Annotated[int, duration(0)] = Field(default=0, alias="patience")
    retries: int = Field(default=3, ge=0, le=100)
    retry_on_exit_codes: ExitCodes = ()
    stall_timeout_seconds: Annotated[int, duration(1)] = Field(default=900, alias="stall_timeout")
    checkpoint: Checkpoint = Checkpoint()
    env: Environment = Field(default_factory=dict)
    env_visible: bool | None = Field(
        default=None, description="Whether who may read the job sees the values of `env`"
    )
    labels: Labels = Field(default_factory=dict)

    image: Image | None = None
    image_secret: SecretName | None = None
    instance_types: InstanceTypes | None = None
    inputs: Inputs = Field(default_factory=dict)
    outputs: Outputs = Field(default_factory=dict)

    secrets: Secrets = None
    notify: ChannelNames = None
    keep_on_failure_seconds: (
        Annotated[KeptSeconds, later("the logs are kept: `lowtide logs NAME`")] | None
    ) = Field(default=None, alias="keep_on_failure")

    @model_validator(mode="after")
    def _one_kind_of_work(self) -> Self:
        if self.trainer is None and self.run is None:
            raise refusal(
                "give `trainer` (the bundled trainer) or `run` (your own command)",
                kind=ProblemKind.MISSING,
            )
        if self.trainer is not None and self.run is not None:
            raise refusal("give `trainer` or `run`, not both; remove one of them", "run")
        return self

    @model_validator(mode="after")
    def _estimate_where_needed(self) -> Self:
        limit = "a deadline" if self.deadline is not None else "a budget"
        limited = self.deadline is not None or self.budget_microusd is not None
        if self.run is not None and limited and self.estimate is None:
            raise refusal(
                f"a `run` with {limit} needs an estimate of the work, like "
                "{hours: 26, gpu: H100:8, nodes: 4}",
                "estimate",
                ProblemKind.MISSING,
            )
        return self

    @model_validator(mode="after")
    def _patience_without_a_deadline(self) -> Self:
        if self.patience_seconds and self.deadline is not None:
            raise refusal(
                "is for jobs without a deadline: a job with one waits as long as its slack allows; "
                "remove one of them",
                "patience",
            )
        return self

    @model_validator(mode="after")
    def _one_rhythm_of_checkpoints(self) -> Self:
        in_steps = self.trainer is not None and self.trainer.checkpoint_interval_steps is not None
        if in_steps and self.checkpoint.interval_seconds is not None:
            raise refusal(
                "give checkpoint.interval or trainer.checkpoint_interval_steps, not both",
                "checkpoint.interval",
            )
        return self

    @model_validator(mode="after")
    def _folders_apart(self) -> Self:
        check_folders(self.brought_folders(), self.outputs)
        return self

    @model_validator(mode="after")
    def _secrets_are_no_variables(self) -> Self:
        both = next((use.name for use in self.secrets or () if use.name in self.env), None)
        if both is not None:
            raise refusal(
                "is a variable in `env` and a secret of the same name; keep one of them",
                f"secrets.{both}",
            )
        return self

    @property
    def command_kind(self) -> Literal["trainer", "run"]:
        """Whether the bundled trainer or the user's own command does the work."""
        return "run" if self.trainer is None else "trainer"

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Every secret of the project that it names, sorted; those of clouds are not among them."""
        names = {use.name for use in self.secrets or ()} | {self.image_secret} - {None}
        of_clouds = {use.name for use in self.cloud_secrets}
        return tuple(sorted(str(name) for name in names - of_clouds))

    @property
    def cloud_secrets(self) -> tuple[SecretUse, ...]:
        """The secrets that its machines read from a cloud's own service."""
        return tuple(use for use in self.secrets or () if use.source is not None)

    @property
    def names_secrets(self) -> bool:
        """Whether its machines must ask for secrets."""
        return bool(self.secrets) or self.image_secret is not None

    @property
    def node_count(self) -> int:
        """Machines in a gang at full size; an elastic job may run on as few as `nodes.least`."""
        return self.nodes.most

    @property
    def gpu_choices(self) -> tuple[GpuChoice, ...]:
        """Acceptable GPU shapes; empty means the smallest that fits."""
        return self.resources.gpu or ()

    @property
    def gpus_per_node(self) -> int:
        """GPUs per machine, the same for every choice; 1 when the spec names none."""
        return self.resources.gpu[0].count if self.resources.gpu else 1

    @property
    def machine_need(self) -> MachineNeed:
        """What a machine needs beside its GPUs: `resources`, and docker for an `image`."""
        return replace(self.resources.machine_need, containers=self.image is not None)

    def effective_market(self) -> Literal["auto", "spot", "on_demand"]:
        """The market asked for; unasked, auto with a deadline and spot without."""
        if self.market is not None:
            return self.market
        return "spot" if self.deadline is None else "auto"

    def deadline_at(self, submitted_at: datetime) -> datetime | None:
        """The deadline in UTC, None without one. `submitted_at` must be aware (ValueError)."""
        if submitted_at.tzinfo is None:
            raise ValueError("submitted_at must be aware")
        if isinstance(self.deadline, timedelta):
            return submitted_at + self.deadline
        return self.deadline

    @property
    def has_limit(self) -> bool:
        """Whether it sets a deadline, a budget or a maximum duration, which its work may exceed."""
        limits = (self.deadline, self.budget_microusd, self.max_duration_seconds)
        return any(limit is not None for limit in limits)

    def require_deadline_ahead(self, submitted_at: datetime) -> None:
        """Raises SpecError when the deadline has passed already or is over ten years away."""
        deadline_at = self.deadline_at(submitted_at)
        if deadline_at is None:
            return
        if deadline_at <= submitted_at:
            raise SpecError.of(
                f"deadline: {format_instant(deadline_at)} has passed already; give a later one",
                "deadline",
            )
        if deadline_at - submitted_at > MAX_DEADLINE_AHEAD:
            raise SpecError.of("deadline: must be within ten years; give a nearer one", "deadline")

    def brought_folders(self) -> dict[str, str]:
        """What machines bring from buckets before they train: `inputs`, and a bucket that the
        bundled trainer's `data` names.
        """
        if self.trainer is None or "://" not in self.trainer.data:
            return dict(self.inputs)
        return {**self.inputs, TRAINING_DATA_INPUT: self.trainer.data}

    def trainer_config(self) -> TrainerDocument | None:
        """The bundled trainer's configuration, None for a `run`: the keys of the trainer section
        that were given, and `checkpoint_interval_seconds` ("auto" or seconds) unless the
        checkpoints are counted in steps.
        """
        if self.trainer is None:
            return None
        config: TrainerDocument = self.trainer.model_dump(mode="json", exclude_none=True)
        if self.trainer.checkpoint_interval_steps is None:
            config["checkpoint_interval_seconds"] = self.checkpoint.interval_seconds or "auto"
        return config

    def to_json(self) -> SpecDocument:
        """The normal form that is stored: JSON values only, defaults filled in, no nulls.

        `parse_spec(spec.to_json()) == spec`, and equal specs have equal normal forms.
        """
        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return cast(SpecDocument, document)

    def to_written_json(self) -> SpecDocument:
        """The same without what its author left out, and a project's defaults may fill."""
        document = self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_unset=True
        )
        return cast(SpecDocument, document)

    def to_short_json(self) -> SpecDocument:
        """The same for people: in the order of the fields, without what is as by default."""
        document = self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
        )
        return cast(SpecDocument, document)


_SECTIONS: Sections = {
    "": JobSpec,
    "trainer": Trainer,
    "resources": Resources,
    "checkpoint": Checkpoint,
    "estimate": Estimate,
}


def parse_spec(data: object) -> JobSpec:
    """The spec from parsed JSON or YAML (see `spec_text.parse_spec_text`) or from `to_json`.

    Raises SpecError listing every field that is wrong, unknown, missing or not available yet.
    """
    if not isinstance(data, dict):
        raise SpecError.of(f"the spec must be a mapping of fields, not {kind_of(data)}")
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise spec_error(error, _SECTIONS) from error


def normal_text(spec: JobSpec) -> str:
    """`to_json` as JSON text: equal specs, however written, have the same."""
    return spec.model_dump_json(by_alias=True, exclude_none=True)


def digest_of(text: str) -> str:
    """SHA-256 (64 hex digits) of a `normal_text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def spec_digest(spec: JobSpec) -> str:
    """The digest that equal specs, however written, agree in."""
    return digest_of(normal_text(spec))

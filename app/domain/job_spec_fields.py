"""The sections of a job spec: trainer, resources, checkpoint, estimate.

Each checks itself; rules between sections live in job_spec. A field marked LATER is known and its
shape is judged, then it is refused as not available yet.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from app.domain.errors import ProblemKind
from app.domain.job_spec_values import (
    CheckpointInterval,
    CheckpointUri,
    GpuChoices,
    Nodes,
    OneGpuChoice,
    TrainingData,
)
from app.domain.spec_value import LATER, SpecModel, matching, not_available, one_of, refusal

KNOWN_MODELS = ("cnn", "mlp", "resnet18")
KNOWN_PRECISIONS = ("fp32", "bf16", "fp16")
KNOWN_OPTIMIZERS = ("sgd", "adamw")
DEFAULT_BATCH_SIZE = 64  # the trainer's own, when the spec gives none
_MILLION = 1_000_000
_BILLION = 1_000_000_000

Size = Annotated[str, matching(r"[1-9][0-9]{0,6}(?:MB|GB|TB)", "write a size like 500GB")]


class Trainer(SpecModel):
    """The bundled trainer's work. Fields left None take the trainer's own defaults.

    Names and bounds are those of the trainer's configuration: what passes here starts there.
    """

    model: Annotated[str, one_of("model", KNOWN_MODELS)]
    data: TrainingData
    epochs: int | None = Field(default=None, ge=1, le=_MILLION)
    steps: int | None = Field(default=None, ge=1, le=_BILLION)
    batch_size: int | None = Field(
        default=None, ge=1, le=_MILLION, description="Samples per step over all machines"
    )
    precision: Annotated[str, one_of("precision", KNOWN_PRECISIONS)] | None = None
    learning_rate: float | None = Field(default=None, ge=1e-12, le=1_000)
    weight_decay: float | None = Field(default=None, ge=0, le=10)
    warmup_steps: int | None = Field(default=None, ge=0, le=_MILLION)
    accumulation: int | None = Field(default=None, ge=1, le=10_000)
    seed: int | None = Field(default=None, ge=0, le=2**32 - 1)
    optimizer: Annotated[str, one_of("optimizer", KNOWN_OPTIMIZERS)] | None = None
    checkpoint_interval_steps: int | None = Field(default=None, ge=1, le=_BILLION)
    eval_every_epochs: int | None = Field(
        default=None, ge=0, le=_MILLION, description="0 evaluates at the end only"
    )
    step_delay_seconds: float | None = Field(default=None, ge=0, le=60)

    @model_validator(mode="after")
    def _epochs_or_steps(self) -> Self:
        if self.epochs is None and self.steps is None:
            raise refusal("give epochs or steps", "epochs", ProblemKind.MISSING)
        if self.epochs is not None and self.steps is not None:
            raise refusal("give epochs or steps, not both", "epochs")
        return self

    @model_validator(mode="after")
    def _parts_of_a_batch(self) -> Self:
        batch_size = self.batch_size or DEFAULT_BATCH_SIZE
        if self.accumulation is not None and self.accumulation > batch_size:
            raise refusal(f"must be at most batch_size ({batch_size:,})", "accumulation")
        return self


class Resources(SpecModel):
    """What each machine must have. `gpu` None means the smallest that fits."""

    gpu: GpuChoices | None = None
    cpus: Annotated[int, Field(ge=1, le=1_024), LATER] | None = None
    memory: Annotated[Size, LATER] | None = None
    disk: Annotated[Size, LATER] | None = None
    shm_size: Annotated[Size, LATER] | None = None
    interconnect: (
        Annotated[str, one_of("interconnect", ("nvlink", "efa", "tcpx", "ib")), LATER] | None
    ) = None

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        if self.gpu and len({choice.count for choice in self.gpu}) > 1:
            raise not_available("alternatives with different numbers of GPUs", "gpu")
        return self


class Checkpoint(SpecModel):
    """Where and how often progress is kept. `interval_seconds` None means auto."""

    uri: CheckpointUri | None = None
    interval_seconds: CheckpointInterval = Field(default=None, alias="interval")
    keep: int = Field(default=3, ge=1, le=1_000, description="Newest ones kept, beside the best")


class Estimate(SpecModel):
    """What the user believes the work needs, until progress tells: hours on nodes x gpu."""

    hours: float = Field(gt=0, le=8_760)
    gpu: OneGpuChoice | None = None
    nodes: Nodes = 1

    @property
    def seconds(self) -> int:
        """Useful seconds with `nodes` machines, at least 1."""
        return max(1, round(self.hours * 3_600))

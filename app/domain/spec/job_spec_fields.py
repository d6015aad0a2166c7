"""The sections of a job spec: trainer, resources, checkpoint, estimate.

Each checks itself; rules between sections live in job_spec, and the trainer's fields are made in
trainer_fields.
"""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from app.domain.market.machine_need import INTERCONNECT_WORDS, MachineNeed
from app.domain.spec.job_spec_machine import DiskSize, ShmSize
from app.domain.spec.job_spec_values import (
    AtLeastCpus,
    AtLeastMemory,
    CheckpointInterval,
    CheckpointUri,
    GpuChoices,
    NodeCount,
    OneGpuChoice,
)
from app.domain.spec.spec_value import SpecModel, not_available, one_of, refusal
from app.domain.spec.trainer_fields import TrainerFields
from app.domain.units.errors import ProblemKind
from trainer.protocol.train_options import OptionError, TrainConfig, parse_options


class Trainer(TrainerFields):
    """The bundled trainer's work. Fields left None take the trainer's own defaults.

    Names and bounds are those of the trainer's configuration: what passes here starts there.
    """

    @model_validator(mode="after")
    def _epochs_or_steps(self) -> Self:
        if self.epochs is None and self.steps is None:
            raise refusal("give epochs or steps", "epochs", ProblemKind.MISSING)
        if self.epochs is not None and self.steps is not None:
            raise refusal("give epochs or steps, not both", "epochs")
        return self

    @model_validator(mode="after")
    def _parts_of_a_batch(self) -> Self:
        batch_size = self.batch_size or TrainConfig.batch_size
        if self.accumulation is not None and self.accumulation > batch_size:
            raise refusal(f"must be at most batch_size ({batch_size:,})", "accumulation")
        return self

    @model_validator(mode="after")
    def _options_go_together(self) -> Self:
        try:
            parse_options(self.model_dump(exclude_none=True))
        except OptionError as error:
            raise refusal(error.sentence, error.key) from error
        return self


class Resources(SpecModel):
    """What each machine must have. `gpu` None means the smallest that fits.

    `cpus` and `memory_gb` are the least of each, written `8+` and `64GB+`. `disk_gb` is the size of
    the disk that a machine is rented with, None: the deployment's. `shm_mb` is the size of
    /dev/shm, None: half of the memory; it is memory, so a machine must have that much.
    """

    gpu: GpuChoices | None = None
    cpus: AtLeastCpus | None = None
    memory_gb: AtLeastMemory | None = Field(default=None, alias="memory")
    disk_gb: DiskSize | None = Field(default=None, alias="disk")
    shm_mb: ShmSize | None = Field(default=None, alias="shm_size")
    interconnect: Annotated[str, one_of("interconnect", INTERCONNECT_WORDS)] | None = None

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        if self.gpu and len({choice.count for choice in self.gpu}) > 1:
            raise not_available("alternatives with different numbers of GPUs", "gpu")
        return self

    @property
    def machine_need(self) -> MachineNeed:
        """What a machine needs beside its GPUs."""
        shm_gb = -(-(self.shm_mb or 0) // 1_000)
        return MachineNeed(self.cpus or 0, max(self.memory_gb or 0, shm_gb), self.interconnect)


class Checkpoint(SpecModel):
    """Where and how often progress is kept. `interval_seconds` None means auto."""

    uri: CheckpointUri | None = None
    interval_seconds: CheckpointInterval = Field(default=None, alias="interval")
    keep: int = Field(
        default=3, ge=1, le=1_000, description="Newest ones kept, in addition to the best"
    )


ESTIMATE_HOURS_MAX: Final = 8_760
"""A year: no estimate says more, so that the runs that are simulated for one have an end."""


class Estimate(SpecModel):
    """What the user believes the work needs, until progress tells: hours on nodes x gpu."""

    hours: float = Field(gt=0, le=ESTIMATE_HOURS_MAX)
    gpu: OneGpuChoice | None = None
    nodes: NodeCount = 1

    @property
    def seconds(self) -> int:
        """Useful seconds with `nodes` machines, at least 1."""
        return max(1, round(self.hours * 3_600))

"""The stored form of a job spec: JSON, in the words that users write, without nulls.

What a key means and which values it takes is said once, at the field of `job_spec.JobSpec` that has
this name or this alias; `parse_spec` reads the document. A test holds both to the same keys. Specs
of earlier releases may lack some.
"""

from __future__ import annotations

from typing import Literal, Required, TypedDict

OptionValue = str | int | float | bool | list["OptionValue"] | dict[str, "OptionValue"]
"""A JSON value of one of the trainer's options; which, its table says (`train_options`)."""

TrainerDocument = dict[str, OptionValue]
"""The bundled trainer's options that were given, by their names."""


class ResourcesDocument(TypedDict, total=False):
    """What each machine must have: `cpus` as 8+, `memory`, `disk` and `shm_size` as 64GB."""

    gpu: list[str]
    cpus: str
    memory: str
    disk: str
    shm_size: str
    interconnect: str


class CheckpointDocument(TypedDict, total=False):
    """Where and how often progress is saved; `interval` as 5m, `keep` a number of checkpoints."""

    uri: str
    interval: str
    keep: int


class EstimateDocument(TypedDict, total=False):
    """The user's word on the work: `hours` on `nodes` machines with `gpu`."""

    hours: float
    gpu: str
    nodes: int


# One of its keys is a word of Python, so it cannot be a class. `from`: of a cloud, as aws-sm:NAME;
# `file`: it comes as a file of this name.
SecretDocument = TypedDict(
    "SecretDocument", {"name": Required[str], "from": str, "file": str}, total=False
)


class SpecDocument(TypedDict, total=False):
    """A whole spec. Durations as 15m, `budget_usd` in dollars as 25.50, GPUs as H100:8."""

    name: str
    project: str
    priority: int
    trainer: TrainerDocument
    run: str
    workdir: str
    setup: str
    nodes: int | str
    resources: ResourcesDocument
    market: Literal["auto", "spot", "on_demand"]
    infra: list[str]
    max_price_ratio: float
    deadline: str
    on_deadline: Literal["finish", "stop"]
    estimate: EstimateDocument
    budget_usd: str
    max_duration: str
    max_wait: str
    patience: str
    retries: int
    retry_on_exit_codes: list[int]
    stall_timeout: str
    checkpoint: CheckpointDocument
    env: dict[str, str]
    env_visible: bool
    labels: dict[str, str]
    image: str
    image_secret: str
    instance_types: list[str]
    inputs: dict[str, str]
    outputs: dict[str, str]
    secrets: list[str | SecretDocument]
    notify: list[str]

"""The bundle of ports and limits that every verb receives.

Lives here: `Runtime`. Not here: its making (`app.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.domain.deadline.live_choice import MakePlacement
from app.domain.launch_limits.contract_prices import NO_CONTRACT, ContractPrices
from app.orchestration.frame.failing_work import FailingWork
from app.orchestration.frame.limits import Limits
from app.ports.clock import Clock
from app.ports.cloud_provider import CloudProvider
from app.ports.effect_runner import EffectRunner
from app.ports.entropy import Entropy
from app.ports.object_store import ObjectStore
from app.ports.people.message_sender import MessageSender
from app.ports.price_source import PriceSource
from app.ports.value_encryption import ValueEncryption
from app.ports.wakeups import Wakeups
from app.storage.unit_of_work import UnitOfWorkFactory


@dataclass(frozen=True)
class Runtime:
    """Everything a verb may touch.

    object_store: the deployment's own, for logs and workdirs. store_at: opens the store at a URI,
    for checkpoints. control_url: where agents reach the control plane. machine_variables: what the
    user data of every rented machine holds besides its launch's own.
    machine_files: what those machines fetch from the api, by its key in the object store.
    checkpoint_region: where `checkpoint_root_uri` is, if it is in S3 and a person has said so.
    make_placement: makes what a job with a deadline is placed by, and loads numpy for it.
    storage_services: stores, `s3` and `gs`, for which machines are given credentials.
    failing: what this process has failed at lately.
    seal_store: for seals over the audit; None: the deployment's own.
    encryption: of secrets; None in programs that neither store nor read any.
    sender: of notifications; the worker alone has one.
    contract: what is paid in place of list prices; the worker's, which reads those.
    """

    begin: UnitOfWorkFactory
    clock: Clock
    entropy: Entropy
    wakeups: Wakeups
    effects: EffectRunner
    object_store: ObjectStore
    store_at: Callable[[str], ObjectStore]
    providers: Mapping[str, CloudProvider]
    price_sources: Mapping[str, PriceSource]
    control_url: str
    checkpoint_root_uri: str
    make_placement: MakePlacement
    limits: Limits = field(default_factory=Limits)
    machine_variables: Mapping[str, str] = field(default_factory=dict)
    machine_files: Mapping[str, bytes] = field(default_factory=dict)
    checkpoint_region: str | None = None
    storage_services: frozenset[str] = frozenset()
    failing: FailingWork = field(default_factory=FailingWork)
    seal_store: ObjectStore | None = None
    encryption: ValueEncryption | None = None
    sender: MessageSender | None = None
    contract: ContractPrices = NO_CONTRACT


__all__ = ["Limits", "Runtime"]

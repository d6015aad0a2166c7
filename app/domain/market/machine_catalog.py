"""Machine types with GPUs: what each carries, as data with a date and a source.

Lives here: the shapes, and the reader that checks a catalog document. Not here: the documents
themselves and where they lie (`app.adapters.providers.machine_catalog`), the GPUs' own figures
(`gpu_catalog`), or prices (`offer`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from app.domain.market.gpu_catalog import GPU_NAMES, model_of
from app.domain.market.offer import Hardware
from app.domain.units.errors import InvalidValue

INTERCONNECTS: Final = ("pcie", "nvlink", "nvswitch")
"""How the GPUs of one machine talk; each is at least as good as those before it."""

FAST_NETWORKS: Final = ("", "efa", "tcpx", "tcpxo", "rdma")
"""Networks between machines that a trainer can use past the kernel; "" is plain TCP."""

MACHINE_TYPES_MAX: Final = 5_000
_NETWORK_CARDS_MAX: Final = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}", re.ASCII)


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class MachineType:
    """One type of machine.

    network_gbps: what the provider states for the machine as a whole ("up to" figures included),
    with one network interface where `extra_nics` or `rdma_nics` names more; those and
    `fast_network` are to be had only with networks of their own, and `wired_gbps` is what the
    machine then has. compact_placement: machines can be asked to stand close together.
    local_nvme_gb: all disks that come with the machine.

    For Google's API alone, "" and () elsewhere. base_type, accelerator: what is asked for where a
    GPU is attached to a general machine type. boot_disks: types of disk that it boots from, the
    preferred one first. nic: type of its network interfaces where it must be named. gpu_quota: the
    region's metric that counts its GPUs, for spot with `PREEMPTIBLE_` before it; "" where
    `regions.get` tells none and Cloud Quotas counts by GPU family.

    For EC2 alone: network_cards, and efa_from_card, the first of them that takes an Elastic Fabric
    Adapter, as all after it do where `fast_network` is `efa`. spot_quota, on_demand_quota: names of
    the quotas that count its CPUs; "" where no document tells.
    """

    provider: str
    name: str
    gpu: str
    gpu_count: int
    gpu_memory_gb: int
    interconnect: str
    network_gbps: float
    vcpus: int
    memory_gb: int
    fast_network: str = ""
    compact_placement: bool = False
    local_nvme_gb: int = 0
    local_nvme_disks: int = 0
    spot: bool = True
    boot_disks: tuple[str, ...] = ()
    nic: str = ""
    extra_nics: int = 0
    rdma_nics: int = 0
    wired_gbps: float = 0.0
    gpu_quota: str = ""
    base_type: str = ""
    accelerator: str = ""
    network_cards: int = 1
    efa_from_card: int = 0
    spot_quota: str = ""
    on_demand_quota: str = ""

    @property
    def efa_cards(self) -> tuple[int, ...]:
        """Indices of the network cards that take an Elastic Fabric Adapter."""
        if self.fast_network != "efa":
            return ()
        return tuple(range(self.efa_from_card, self.network_cards))

    @property
    def hardware(self) -> Hardware:
        """What an offer of this type carries."""
        return Hardware(
            gpu_name=self.gpu,
            gpu_count=self.gpu_count,
            gpu_memory_gb=self.gpu_memory_gb,
            vcpus=self.vcpus,
            memory_gb=self.memory_gb,
            interconnect=self.interconnect,
            fast_network=self.fast_network,
            quota=self.gpu_quota,
        )


@dataclass(frozen=True, slots=True)
class MachineCatalog:
    """The machine types of one provider, by name. as_of: the day the source was read."""

    provider: str
    as_of: date
    source: str
    types: tuple[MachineType, ...]

    def get(self, name: str) -> MachineType | None:
        """The type of a name, None when the catalog lacks it."""
        return next((one for one in self.types if one.name == name), None)

    def to_json(self) -> dict[str, object]:
        """A JSON object; `read_catalog` reads it back equal. Defaults are left out."""
        return {
            "provider": self.provider,
            "as_of": self.as_of.isoformat(),
            "source": self.source,
            "types": [
                _TYPE.dump_python(one, exclude={"provider"}, exclude_defaults=True)
                for one in self.types
            ],
        }


def make_catalog(
    provider: str, as_of: date, source: str, types: Iterable[MachineType]
) -> MachineCatalog:
    """A catalog of these types, sorted and checked. Raises InvalidValue naming what is wrong."""
    ordered = tuple(sorted(types, key=lambda one: one.name))
    if not ordered:
        raise InvalidValue(f"the catalog of {provider} lists no machine type")
    if len(ordered) > MACHINE_TYPES_MAX:
        raise InvalidValue(f"the catalog of {provider} lists more than {MACHINE_TYPES_MAX} types")
    for earlier, later in itertools.pairwise(ordered):
        if earlier.name == later.name:
            raise InvalidValue(f"{provider}: {later.name} is listed twice")
    for one in ordered:
        problem = _problem(one, provider)
        if problem is not None:
            raise InvalidValue(f"{provider}: {one.name[:64]!r} {problem}")
    return MachineCatalog(provider, as_of, source, ordered)


def read_catalog(document: object) -> MachineCatalog:
    """A catalog from its JSON object. Raises InvalidValue saying what is wrong, and where."""
    if not isinstance(document, Mapping):
        raise InvalidValue("a catalog must be a JSON object")
    provider, source = document.get("provider"), document.get("source")
    entries = document.get("types")
    if not isinstance(provider, str) or not isinstance(source, str) or not source:
        raise InvalidValue("a catalog must name its provider and its source")
    if not isinstance(entries, list):
        raise InvalidValue(f"the catalog of {provider} must hold a list `types`")
    try:
        as_of = date.fromisoformat(str(document.get("as_of")))
    except ValueError:
        raise InvalidValue(
            f"the catalog of {provider} has no date; write as_of: 2026-01-31"
        ) from None
    types = [_read_type(provider, index, entry) for index, entry in enumerate(entries)]
    return make_catalog(provider, as_of, source, types)


_TYPE: Final = TypeAdapter(MachineType)
_KIND_NAMES: Final = {
    "string_type": "text", "int_type": "whole number", "float_type": "number",
    "bool_type": "true or false", "tuple_type": "list of texts",
}  # fmt: skip


def _read_type(provider: str, index: int, entry: object) -> MachineType:
    where = f"{provider}: types[{index}]"
    if not isinstance(entry, Mapping):
        raise InvalidValue(f"{where} must be an object")
    if "provider" in entry:
        raise InvalidValue(f"{where} has an unknown field 'provider'")
    try:
        # As JSON, in whose strict mode a list may be a tuple.
        return _TYPE.validate_json(json.dumps({**entry, "provider": provider}))
    except ValidationError as error:
        raise InvalidValue(f"{where}{_wrong_field(error, entry)}") from error


def _wrong_field(error: ValidationError, entry: Mapping[object, object]) -> str:
    """What to say of the first field that is missing, unknown or of another kind."""
    problems = error.errors(include_url=False)
    for problem in problems:
        name = str(problem["loc"][0])
        if problem["type"] == "missing":
            return f" lacks {name}"
        if problem["type"] == "unexpected_keyword_argument":
            return f" has an unknown field {name[:40]!r}"
    name = str(problems[0]["loc"][0])
    in_list = len(problems[0]["loc"]) > 1
    kind = _KIND_NAMES["tuple_type" if in_list else problems[0]["type"]]
    return f".{name} is {entry[name]!r}, not a {kind}"


def _problem(one: MachineType, provider: str) -> str | None:
    """What is wrong with a type, None when nothing is."""
    if one.provider != provider:
        return f"belongs to {one.provider}"
    if _NAME.fullmatch(one.name) is None:
        return "is not a valid name of a machine type"
    if one.gpu not in GPU_NAMES:
        return f"has the unknown GPU {one.gpu[:40]!r}"
    model = model_of(one.gpu, one.gpu_memory_gb)
    if model is None or model.memory_gb != one.gpu_memory_gb:
        return f"has a {one.gpu} with {one.gpu_memory_gb} GB, which does not exist"
    if not 1 <= one.gpu_count <= 16 or one.vcpus < 1 or one.memory_gb < 1:
        return "needs at least one GPU (at most 16), one CPU and 1 GB of memory"
    if one.interconnect not in INTERCONNECTS:
        return f"has the interconnect {one.interconnect[:40]!r}, not {' or '.join(INTERCONNECTS)}"
    if one.fast_network not in FAST_NETWORKS:
        return f"has the unknown network {one.fast_network[:40]!r}"
    if not one.network_gbps > 0:
        return "has no network speed"
    if min(one.extra_nics, one.rdma_nics) < 0 or (
        (one.extra_nics + one.rdma_nics > 0) != (one.wired_gbps > one.network_gbps)
    ):
        return "must give both its further network interfaces and what it has with them, or neither"
    if not 0 <= one.efa_from_card < one.network_cards <= _NETWORK_CARDS_MAX:
        return "must have a network card, and its first one with EFA among them"
    if min(one.local_nvme_gb, one.local_nvme_disks) < 0 or (
        (one.local_nvme_gb > 0) != (one.local_nvme_disks > 0)
    ):
        return "must give both the number of its local disks and their size, or neither"
    return None

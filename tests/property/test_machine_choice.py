"""Whatever is asked for: what is chosen has it, and asking for more never gives more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, shipped_catalog
from app.domain.market.gpu_catalog import GPU_MODELS, GPU_NAMES, relative_speed
from app.domain.market.gpu_choice import GpuChoice, parse_gpu_choice, parse_gpu_choices
from app.domain.market.machine_catalog import MachineType, read_catalog
from app.domain.market.machine_need import INTERCONNECT_WORDS, MachineNeed, carries_gpus, lacks
from app.domain.units.errors import InvalidValue

TYPES = [one for name in CATALOG_PROVIDERS for one in shipped_catalog(name).types]

counts = st.integers(1, 16)
choices = st.one_of(
    st.builds(lambda model, n: GpuChoice(model.name, model.memory_gb, n),
              st.sampled_from(GPU_MODELS), counts),
    st.builds(lambda name, n: GpuChoice(name, None, n), st.sampled_from(GPU_NAMES), counts),
    st.builds(lambda memory, n: GpuChoice(None, memory, n), st.integers(1, 300), counts),
)  # fmt: skip
needs = st.builds(
    MachineNeed,
    st.integers(0, 256),
    st.integers(0, 4_000),
    st.one_of(st.none(), st.sampled_from(INTERCONNECT_WORDS)),
)


def _chosen(wanted: list[GpuChoice], need: MachineNeed) -> list[MachineType]:
    return [
        one
        for one in TYPES
        if carries_gpus(one.hardware, wanted, 16) and lacks(one.hardware, need) is None
    ]


def _tried(read: Callable[[], Any]) -> tuple[Any, str]:
    """What was read, or None and the sentence that refused it."""
    try:
        return read(), ""
    except InvalidValue as refused:
        return None, refused.message


@given(choices)
def test_a_choice_is_written_as_it_is_read(choice: GpuChoice):
    assert parse_gpu_choice(str(choice)) == choice
    assert parse_gpu_choice(str(choice).lower().replace("gb", "GB")) == choice


@given(st.lists(choices, max_size=4), needs)
def test_what_is_chosen_has_what_was_asked_for(wanted: list[GpuChoice], need: MachineNeed):
    for one in _chosen(wanted, need):
        assert one.vcpus >= need.vcpus
        assert one.memory_gb >= need.memory_gb
        assert not wanted or one.gpu_count in {choice.count for choice in wanted}
        named = {choice.name for choice in wanted}
        assert not wanted or None in named or one.gpu in named
        if need.interconnect in ("nvlink", "nvswitch") and one.gpu_count > 1:
            assert one.interconnect in ("nvlink", "nvswitch")
        if need.interconnect == "efa":
            assert one.provider == "aws"


@given(st.lists(choices, max_size=3), needs, st.integers(0, 64), st.integers(0, 512))
def test_asking_for_more_never_gives_more(
    wanted: list[GpuChoice], need: MachineNeed, cpus: int, memory: int
):
    more = replace(need, vcpus=need.vcpus + cpus, memory_gb=need.memory_gb + memory)
    assert {one.name for one in _chosen(wanted, more)} <= {
        one.name for one in _chosen(wanted, need)
    }


@given(st.sampled_from(TYPES))
def test_every_machine_can_be_asked_for_by_its_name_and_is_rated(one: MachineType):
    choice = GpuChoice(one.gpu, one.gpu_memory_gb, one.gpu_count)
    assert one in _chosen([choice], MachineNeed(one.vcpus, one.memory_gb, one.interconnect))
    assert relative_speed(one.gpu, one.gpu_memory_gb, one.gpu_count) > 0


@given(st.one_of(st.text(max_size=40), st.integers(), st.none(), st.lists(st.text(max_size=9))))
@example("A100-80GB-40GB")
@example("::::")
@example("GB..:1")
def test_any_text_is_a_choice_or_a_sentence(written: Any):
    read, said = _tried(lambda: parse_gpu_choices(written))
    if read is None:
        assert 0 < len(said) < 400
    else:
        assert parse_gpu_choices([str(choice) for choice in read]) == read


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)


@given(
    st.sampled_from(["name", "gpu", "gpu_count", "gpu_memory_gb", "vcpus", "network_gbps", "spot"]),
    json_values,
)
def test_any_value_in_a_catalog_is_read_or_refused(field: str, value: Any):
    document: dict[str, Any] = shipped_catalog("aws").to_json()
    document["types"] = [{**document["types"][0], field: value}]
    catalog, said = _tried(lambda: read_catalog(document))
    if catalog is None:
        assert said.startswith("aws")
    else:
        assert read_catalog(catalog.to_json()) == catalog


@given(json_values)
def test_any_document_is_read_or_refused(document: Any):
    with pytest.raises(InvalidValue):
        read_catalog(document)

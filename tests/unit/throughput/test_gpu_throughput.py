"""Speeds of kinds of machine: what was measured of one holds for whoever leaves its memory open."""

from __future__ import annotations

import pytest

from app.domain.throughput.gpu_throughput import MEASURED, V100, GpuThroughput, gpu_throughput
from app.domain.throughput.measured_run import GpuShape, MeasuredRun

A100 = GpuShape("A100", 40, 1)
OPEN = A100._replace(memory_gb=0)


def measured() -> GpuThroughput:
    """An A100 that was seen to be no quicker than a V100, for long."""
    return gpu_throughput([MeasuredRun(kind, 1, 36_000, 36_000.0) for kind in (V100, A100)])


def test_a_kind_whose_memory_is_left_open_is_as_it_was_measured():
    speeds = measured()
    assert speeds.of(OPEN) == speeds.of(A100) == pytest.approx(speeds.of(V100), rel=0.1)
    assert speeds.source(OPEN) == speeds.source(A100) == MEASURED
    # No doubt is added to what runs have told.
    assert speeds.seconds_on(OPEN, 3_600.0, V100) == speeds.seconds_on(A100, 3_600.0, V100)


def test_another_kind_is_as_its_data_sheet_says():
    speeds = measured()
    other = GpuShape("H100", 80, 1)
    assert not speeds.is_measured(other)
    assert speeds.of(other) == GpuThroughput({}).of(other)

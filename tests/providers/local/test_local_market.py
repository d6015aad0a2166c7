"""The recorded markets: the files, the clock they play on, and what replay takes."""

from __future__ import annotations

import math
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from app.adapters.providers.local.files.cloud_settings import CloudTerms, LocalSettings
from app.adapters.providers.local.market.market import RecordedMarkets
from app.adapters.providers.local.market.recordings import (
    RECORDINGS,
    TRACES_FOLDER,
    Recording,
    region_of,
)
from app.adapters.providers.local.market.trace_file import TraceFileError, read_trace
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.ports.cloud_provider import MachineState, PoolBid, RefusalKind
from tests.support.deployment.scripted_local_cloud import (
    AWS_POOL,
    GCP_POOL,
    an_order,
    eventually,
    open_local_cloud,
    spot_pool,
)

EPOCH_US = 1_800_000_000_000_000
SECOND = 1_000_000
REPLAYED = LocalSettings(mode="replay", local_slots=4)


def markets(
    speed: Fraction = Fraction(1), offset: int = 0, settings: LocalSettings = REPLAYED
) -> RecordedMarkets:
    return RecordedMarkets(CloudTerms(EPOCH_US, offset, speed, Fraction(1)), settings)


@pytest.mark.parametrize("name", [recording.name for recording in RECORDINGS])
def test_the_files_read_as_numpy_reads_them(name: str) -> None:
    path = TRACES_FOLDER / f"{name}.npz"
    ours = read_trace(path)
    with np.load(path) as theirs:
        assert list(ours.zones) == list(theirs["zones"])
        assert (ours.gap_seconds, ours.gang) == (theirs["gap_seconds"], theirs["gang"])
        np.testing.assert_array_equal(np.array(ours.prices, dtype=np.float32), theirs["price"])
        np.testing.assert_array_equal(np.array(ours.on_demand, np.float32), theirs["od"])
        available = np.array([np.frombuffer(row, np.uint8) for row in ours.available])
        np.testing.assert_array_equal(available, theirs["avail"])


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_a_recording_names_the_regions_of_its_zones(recording: Recording) -> None:
    zones = read_trace(TRACES_FOLDER / f"{recording.name}.npz").zones
    regions = {region_of(zone.partition("_")[0], recording.cloud) for zone in zones}
    assert recording.regions == tuple(sorted(regions))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"no archive")
    with pytest.raises(TraceFileError, match=r"broken\.npz"):
        read_trace(broken)
    with zipfile.ZipFile(broken, "w") as archive:
        for member in ("zones", "gap_seconds", "gang", "price", "od", "avail"):
            archive.writestr(f"{member}.npy", b"not an array")
    with pytest.raises(TraceFileError, match=r"broken\.npz"):
        read_trace(broken)


def test_bytes_that_broke_on_the_way_are_named(tmp_path: Path) -> None:
    """Whatever zipfile, zlib and the parser of headers raise at them; some changes do no harm."""
    broken, problems = tmp_path / "broken.npz", []
    whole = (TRACES_FOLDER / f"{RECORDINGS[0].name}.npz").read_bytes()
    for place in range(0, len(whole), len(whole) // 150):
        broken.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_trace(broken)
        except TraceFileError as error:
            problems.append(str(error))
    assert len(problems) > 100
    assert all(problem.startswith("broken.npz: ") for problem in problems)


def test_every_pool_has_a_price_below_on_demand_and_a_twin() -> None:
    played = markets()
    pools = {market.pool: market for market in played.pools()}
    assert len(pools) == 26
    for pool, market in pools.items():
        assert pool.zone.startswith(pool.region)
        assert (market.cloud == "gce") == ("-" in pool.zone[-2:])
        twin = pools[replace(pool, market=Market.ON_DEMAND)]
        price = played.price_at(pool, EPOCH_US)
        if pool.market is Market.SPOT:
            assert 0 < price < played.price_at(twin.pool, EPOCH_US) == market.on_demand_microusd
        else:
            assert played.offered(pool, EPOCH_US) is None


def test_prices_are_those_of_the_recording() -> None:
    played = markets()
    assert played.price_at(spot_pool("us-west-2a"), EPOCH_US) == 918_000
    assert played.price_at(spot_pool("us-east-1c"), EPOCH_US) == 1_205_400
    # The H100 recording lists the 8-GPU shape: 18.979008 / 8 and 82.52544 / 8.
    assert played.price_at(GCP_POOL, EPOCH_US) == 2_372_376
    on_demand = replace(GCP_POOL, market=Market.ON_DEMAND)
    assert played.price_at(on_demand, EPOCH_US) == 10_315_680
    # Nothing recorded: 0.318 of on-demand.
    assert played.price_at(spot_pool("us-east-2a"), EPOCH_US) == round(3_060_000 * 0.318)


@pytest.mark.parametrize("speed", [Fraction(1), Fraction(60), Fraction(3600), Fraction(7, 3)])
def test_changes_happen_at_the_wall_instant_at_which_the_price_changes(speed: Fraction) -> None:
    played = markets(speed, offset=1_000)
    pool = spot_pool("us-east-1c")
    lap_us = math.ceil(12_094 * 195 * SECOND / speed)
    points = list(played.price_points(pool, EPOCH_US, EPOCH_US + 2 * lap_us))
    assert len(points) > 2 * 117
    assert points[0].at_us == EPOCH_US
    for before, point in pairwise(points):
        assert before.at_us < point.at_us
        assert played.price_at(pool, point.at_us) == point.microusd_per_hour
        assert played.price_at(pool, point.at_us - 1) == before.microusd_per_hour


def test_prices_follow_the_recording_tick_by_tick_and_start_over() -> None:
    played = markets(Fraction(195))  # one tick a second
    pool = spot_pool("us-east-1f")
    row = read_trace(TRACES_FOLDER / "aws_2023_v100_9z.npz")
    prices = row.prices[row.zones.index("us-east-1f_v100_1")]
    for tick in (*range(0, len(prices), 97), len(prices) - 1):
        expected = round(prices[tick] * 1_000_000)
        for lap in (0, 2):
            at_us = EPOCH_US + (tick + lap * len(prices)) * SECOND
            assert played.price_at(pool, at_us) == expected


def test_before_the_epoch_there_is_only_the_first_price() -> None:
    played = markets()
    points = list(played.price_points(AWS_POOL, EPOCH_US - 10**12, EPOCH_US))
    assert [(point.at_us, point.microusd_per_hour) for point in points] == [(EPOCH_US, 918_000)]


def test_availability_follows_the_recording_only_in_replay() -> None:
    pool = spot_pool("us-east-1c")  # not available when the recording begins
    assert markets().offered(pool, EPOCH_US) == 0
    assert markets(settings=LocalSettings()).offered(pool, EPOCH_US) == 4
    assert markets().offered(AWS_POOL, EPOCH_US) == 4  # yes or no, times the slots
    assert markets().offered(GCP_POOL, EPOCH_US) == 16  # counted machines


def test_the_next_shortage_is_the_first_instant_below_the_count() -> None:
    played = markets(Fraction(600))
    below_us = played.next_below(AWS_POOL, 3, EPOCH_US)
    assert below_us is not None
    assert below_us > EPOCH_US
    assert (played.offered(AWS_POOL, below_us) or 0) < 3
    assert played.offered(AWS_POOL, below_us - 1) == 4
    assert played.next_below(AWS_POOL, 0, EPOCH_US) is None
    assert markets(settings=LocalSettings()).next_below(AWS_POOL, 3, EPOCH_US) is None
    assert played.next_below(replace(AWS_POOL, market=Market.ON_DEMAND), 3, EPOCH_US) is None


def test_offers_are_whole_and_count_what_runs() -> None:
    with open_local_cloud() as cloud:
        before = {offer.pool: offer for offer in cloud.prices.offers()}
        assert list(before) == sorted(before)
        assert before[AWS_POOL].available == 2
        assert before[AWS_POOL].cloud == "ec2"
        assert before[AWS_POOL].hardware.gpu_name == "V100"
        assert before[GCP_POOL].hardware.gpu_memory_gb == 80
        assert before[AWS_POOL].quoted_at.tzinfo is not None
        machine_id = cloud.launch()
        now = {offer.pool: offer.available for offer in cloud.prices.offers()}
        assert now[AWS_POOL] == 1
        cloud.provider.terminate((machine_id,))
        cloud.await_end(machine_id)
        assert {offer.pool: offer.available for offer in cloud.prices.offers()}[AWS_POOL] == 2


def test_price_history_is_in_wall_time() -> None:
    before = datetime.now(UTC)
    with open_local_cloud(market_speed=1_000_000.0) as cloud:
        cloud.provider.regions()
        pool = spot_pool("us-east-1c")
        eventually(lambda: len(cloud.prices.changes_since(before)) > 200, "prices move")
        found = cloud.prices.changes_since(before)
        assert list(found) == sorted(found, key=lambda change: (change.pool, change.at))
        changes = [change for change in found if change.pool == pool]
        assert before <= changes[0].at < changes[-1].at <= datetime.now(UTC)
        later = cloud.prices.changes_since(changes[3].at + timedelta(microseconds=1))
        assert next(change for change in later if change.pool == pool) == changes[3]
        assert cloud.prices.changes_since(changes[-1].at)


def shortage(zone: str) -> int:
    """Seconds into the Amazon recording at which a zone that was available is so no more."""
    trace = read_trace(TRACES_FOLDER / "aws_2023_v100_9z.npz")
    row = trace.available[trace.zones.index(f"{zone}_v100_1")]
    tick = next(t for t in range(10, len(row)) if row[t - 10 : t] == b"\1" * 10 and not row[t])
    return tick * trace.gap_seconds


def test_replay_takes_all_machines_of_a_pool_with_notice_when_it_runs_dry() -> None:
    offset = shortage("us-west-2a") - 195
    with open_local_cloud(
        mode="replay", market_offset_seconds=offset, market_speed=195.0, ec2_notice_seconds=0.5
    ) as cloud:
        first = cloud.launch(an_order(AWS_POOL, token="a"))
        second = cloud.launch(an_order(AWS_POOL, token="b"))
        assert cloud.machine(first).state is MachineState.RUNNING
        for machine_id in (first, second):
            ended = cloud.await_end(machine_id)
            assert ended.ended_by is EndedBy.CLOUD_INTERRUPTION
            assert ended.ended_at is not None
            assert ended.launched_at is not None
            assert ended.ended_at - ended.launched_at >= timedelta(seconds=0.5)


def test_replay_refuses_where_the_recording_has_none() -> None:
    dry = spot_pool("us-east-1c")
    with open_local_cloud(mode="replay") as cloud:
        result = cloud.provider.launch(an_order(dry, AWS_POOL))
        assert [machine.pool for machine in result.accepted] == [AWS_POOL]
        assert [(one.pool, one.kind) for one in result.refused] == [(dry, RefusalKind.NO_CAPACITY)]


def test_scripted_markets_take_nothing_by_themselves() -> None:
    offset = shortage("us-west-2a") - 195
    with open_local_cloud(market_offset_seconds=offset, market_speed=1_950.0) as cloud:
        machine_id = cloud.launch()
        start = cloud.prices.offers()[0].quoted_at
        eventually(
            lambda: cloud.prices.offers()[0].quoted_at > start + timedelta(seconds=0.5), "time"
        )
        assert cloud.machine(machine_id).state is MachineState.RUNNING


def test_a_bid_at_the_price_is_enough() -> None:
    with open_local_cloud() as cloud:
        order = replace(an_order(), bids=(PoolBid(AWS_POOL, 918_000),))
        assert len(cloud.provider.launch(order).accepted) == 1

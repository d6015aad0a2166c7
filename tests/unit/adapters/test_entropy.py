"""Ids sort by creation whatever the clock does; tokens and jitter are what they say."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from app.adapters.system_entropy import SystemEntropy

NS_PER_MS = 1_000_000
WALL_NS = 1_790_000_000_123_456_789


def ticking(*readings: int) -> SystemEntropy:
    """An entropy whose clock gives these readings, in nanoseconds since 1970."""
    remaining: Iterator[int] = iter(readings)
    return SystemEntropy(lambda: next(remaining))


def milliseconds_of(made: UUID) -> int:
    """The first 48 bits of a UUIDv7 (RFC 9562, section 5.7)."""
    return made.int >> 80


def test_an_id_is_a_version_7_with_the_wall_clock_in_front():
    made = ticking(WALL_NS).new_id()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert milliseconds_of(made) == WALL_NS // NS_PER_MS


def test_the_fraction_of_the_millisecond_follows():
    made = ticking(1000 * NS_PER_MS + NS_PER_MS // 2).new_id()
    assert (made.int >> 64) & 0xFFF == 4096 // 2


def test_ids_strictly_increase_within_one_instant():
    entropy = SystemEntropy(lambda: WALL_NS)
    ids = [entropy.new_id() for _ in range(10_000)]
    assert all(one < other for one, other in pairwise(ids))
    assert [str(one) for one in ids] == sorted(str(one) for one in ids)


def test_ids_increase_when_the_clock_jumps_back():
    entropy = ticking(WALL_NS, WALL_NS - 3600 * 1000 * NS_PER_MS, WALL_NS + NS_PER_MS)
    first, while_behind, caught_up = (entropy.new_id() for _ in range(3))
    assert first < while_behind < caught_up
    assert milliseconds_of(caught_up) == WALL_NS // NS_PER_MS + 1


def test_threads_never_get_the_same_id():
    entropy, made = SystemEntropy(), list[UUID]()
    threads = [
        threading.Thread(target=lambda: made.extend([entropy.new_id() for _ in range(2_000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.int >> 64 for one in made}) == 8_000


def test_two_processes_do_not_share_the_random_part():
    one, other = ticking(WALL_NS).new_id(), ticking(WALL_NS).new_id()
    assert one != other
    assert one.int >> 64 == other.int >> 64


def test_a_token_has_256_bits_and_needs_no_quoting():
    tokens = {SystemEntropy().new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 43 for token in tokens)
    assert all(token.replace("-", "").replace("_", "").isalnum() for token in tokens)


def test_jitter_is_spread_over_zero_to_one():
    entropy = SystemEntropy()
    drawn = [entropy.uniform() for _ in range(4_000)]
    assert all(0.0 <= one < 1.0 for one in drawn)
    assert min(drawn) < 0.02
    assert max(drawn) > 0.98

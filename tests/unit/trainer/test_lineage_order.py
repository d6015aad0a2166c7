"""The order in which checkpoints are tried: fence first, then step, along recorded parents."""

from __future__ import annotations

from trainer.protocol.checkpoint_manifest import CheckpointRef, lineage_order


def order(
    manifests: list[tuple[int, int]],
    parents: dict[int, tuple[int, int] | None],
    below_fence: int = 99,
) -> list[tuple[int, int]]:
    refs = {
        fence: CheckpointRef(parent[0], parent[1], "d") if parent else None
        for fence, parent in parents.items()
    }
    return list(lineage_order(manifests, refs, below_fence))


def test_nothing_stored_is_a_fresh_start() -> None:
    assert order([], {}) == []


def test_newest_step_of_the_highest_fence_first() -> None:
    found = [(1, 10), (1, 20), (2, 15), (2, 25)]
    assert order(found, {1: None, 2: (1, 10)}) == [(2, 25), (2, 15), (1, 10)]


def test_steps_beyond_the_recorded_parent_are_never_read_again() -> None:
    # The cut-off machine of attempt 1 went on to step 900 after attempt 2 had begun at 100.
    found = [(1, 100), (1, 900), (2, 150)]
    assert order(found, {1: None, 2: (1, 100)}) == [(2, 150), (1, 100)]


def test_a_higher_step_of_a_lower_fence_never_wins() -> None:
    assert order([(1, 900), (2, 150)], {1: None, 2: None}) == [(2, 150)]


def test_only_attempts_before_the_new_one_count() -> None:
    assert order([(1, 10), (5, 50)], {1: None, 5: (1, 10)}, below_fence=5) == [(1, 10)]


def test_an_attempt_that_committed_nothing_is_passed_over() -> None:
    # Attempt 2 has a record and no manifest: the newest of attempt 1 counts, whole.
    assert order([(1, 10), (1, 20)], {1: None, 2: (1, 10)}) == [(1, 20), (1, 10)]


def test_the_chain_is_followed_to_its_beginning() -> None:
    found = [(1, 10), (2, 20), (3, 30), (3, 40)]
    parents = {1: None, 2: (1, 10), 3: (2, 20)}
    assert order(found, parents) == [(3, 40), (3, 30), (2, 20), (1, 10)]


def test_a_damaged_record_that_points_in_a_circle_ends() -> None:
    assert order([(1, 10), (2, 20)], {1: (2, 20), 2: (1, 10)}) == [(2, 20), (1, 10)]

"""How the machines of a gang bring one checkpoint into the store together: keys and shapes.

Machine 0 writes numbered orders that name a save and the step under which it goes into the
lineage; the others upload their files there and say so in a record beside them. Not here: the
manifest that makes it all count (`checkpoint_manifest`), or any reading and writing of a store
(`trainer.agent.checkpoints.gather_shares`, `trainer.agent.checkpoints.send_share`).

Every key is created once: orders `shares/<fence>/<number>.json`; records and signs of life
`data/<fence>/<step>/share-<machine>-of-save-<save>…json`, which go when the checkpoint goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.protocol.checkpoint_manifest import FileEntry, data_prefix


@dataclass(frozen=True)
class ShareOrder:
    """What machine 0 wants of every other machine.

    step: under which the files go into the lineage. save: which save of the attempt, counted from
    1 and alike on all machines. leave_out: without the files that a checkpoint may do without.
    """

    fence: int
    step: int
    save: int
    leave_out: bool = False


@dataclass(frozen=True)
class ShareRecord:
    """One machine's share is in the store: all `files`, of which `optional` may be left out.

    problem: why this machine cannot give the share, which is for good. place_taken: something
    else lies under that step.
    """

    fence: int
    step: int
    save: int
    machine: int
    files: tuple[FileEntry, ...] = ()
    optional: tuple[str, ...] = ()
    problem: str = ""
    place_taken: bool = False


def order_key(fence: int, number: int) -> str:
    """Key of an attempt's order, counted from 1."""
    return f"shares/{fence:010d}/{number:06d}.json"


def record_key(order: ShareOrder, machine: int, required_only: bool = False) -> str:
    """Key of a machine's record; required_only: all but what may be left out is there."""
    return f"{_name(order, machine)}{'-required' if required_only else ''}.json"


def life_key(order: ShareOrder, machine: int, number: int) -> str:
    """Key of a machine's sign that it is still at it, counted from 1."""
    return f"{_name(order, machine)}-alive-{number:05d}.json"


def _name(order: ShareOrder, machine: int) -> str:
    prefix = data_prefix(order.fence, order.step)
    return f"{prefix}share-{machine:05d}-of-save-{order.save:06d}"

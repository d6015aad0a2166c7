"""``python -m trainer.training.doctor --data WHERE``: finds bad data before the money is spent.

Every sample is read and decoded as training would, by all cores. Told are samples that cannot be
read, files that are empty or not what their name says, the same content twice (worse: in two
classes, or in training and in scoring), classes without training samples, and files that no layout
uses. Exit code 0: nothing found; 1: something found; 2: the data cannot be opened at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import DataSet, load_data
from trainer.training.data.loading.cores import usable_cores
from trainer.training.data.loading.data_parts import PART_NAMES, BadSampleError
from trainer.training.data.sources.progress_line import ProgressLine
from trainer.training.training_errors import ConfigError, DataUnavailableError

CHUNK = 64
SHOWN = 10


@dataclass(frozen=True)
class SampleCheck:
    """What was seen of one sample. ``problem`` "" for a good one; ``digest`` of its content."""

    part: str
    name: str
    label: int
    shape: tuple[int, ...] = ()
    digest: str = ""
    problem: str = ""


@dataclass
class DatasetReport:
    """The report. Problems are lists of sentences."""

    samples: dict[str, int]
    classes: dict[str, int]
    shapes: dict[str, int]
    unreadable: list[str] = field(default_factory=list)
    in_two_classes: list[str] = field(default_factory=list)
    in_two_parts: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    untrained: list[str] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How many things should be mended; plain duplicates are only told."""
        kinds = (self.unreadable, self.in_two_classes, self.in_two_parts, self.untrained)
        return sum(len(kind) for kind in kinds)


def examine(data: DataSet, most: int | None, processes: int) -> DatasetReport:
    """Reads up to ``most`` samples of each part, evenly chosen, and judges what was seen."""
    work = []
    for name in PART_NAMES:
        count = len(data.part(name))
        ids = (
            np.arange(count)
            if most is None
            else np.unique(np.linspace(0, count - 1, most, dtype=int))
        )
        ids = ids[:count]
        work += [(name, ids[first : first + CHUNK]) for first in range(0, len(ids), CHUNK)]
    looks: list[SampleCheck] = []
    with ProgressLine("samples", sum(len(ids) for _, ids in work)) as line:
        for chunk in _looked(data, work, processes):
            for look in chunk:
                looks.append(look)
                line.advance()
    return judged(data, looks, whole=most is None)


def judged(data: DataSet, looks: list[SampleCheck], *, whole: bool) -> DatasetReport:
    """The report on what was seen; ``whole``: that is every sample."""
    good = [look for look in looks if not look.problem]
    findings = DatasetReport(
        samples={name: len(data.part(name)) for name in PART_NAMES},
        classes=_class_counts(data, good),
        shapes={str(shape): count for shape, count in Counter(e.shape for e in good).most_common()},
        unreadable=[f"{look.name}: {look.problem}" for look in looks if look.problem],
    )
    if data.kind == "images":
        _compare(data, good, findings)
        labels = {look.label for look in good}
        trained = {look.label for look in good if look.part == "train"} if whole else labels
        findings.untrained = [
            f"class {_class_name(data, label)} has samples to score but none to train on"
            for label in sorted(labels - trained)
        ]
    return findings


def _compare(data: DataSet, good: list[SampleCheck], findings: DatasetReport) -> None:
    """Notes content that is there more than once."""
    seen: dict[str, SampleCheck] = {}
    for look in good:
        first = seen.setdefault(look.digest, look)
        if first is look:
            continue
        pair = f"{first.name} and {look.name}"
        if first.label != look.label:
            names = _class_name(data, first.label), _class_name(data, look.label)
            findings.in_two_classes.append(f"{pair} ({names[0]}, {names[1]})")
        elif first.part != look.part:
            findings.in_two_parts.append(f"{pair} ({first.part}, {look.part})")
        else:
            findings.duplicates.append(pair)


def _looked(
    data: DataSet, work: list[tuple[str, Any]], processes: int
) -> Iterator[list[SampleCheck]]:
    if processes <= 1:
        yield from (_look(data, *each) for each in work)
        return
    # Forked: a bucket's client is opened in each process; see ``data/sources/source.py``.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        names, ids = zip(*work, strict=True) if work else ((), ())
        yield from pool.map(partial(_look, data), names, ids)


def _look(data: DataSet, part_name: str, ids: Any) -> list[SampleCheck]:
    part = data.part(part_name)
    looks = []
    for index in ids.tolist():
        name = part.name(index)
        try:
            value, label = part.read(index)
        except (BadSampleError, DataUnavailableError) as error:
            looks.append(SampleCheck(part_name, name, -1, problem=str(error)))
            continue
        digest = hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()
        number = int(label) if data.kind == "images" else -1
        looks.append(SampleCheck(part_name, name, number, tuple(value.shape), digest))
    return looks


def _class_counts(data: DataSet, good: list[SampleCheck]) -> dict[str, int]:
    if data.kind != "images":
        return {}
    counts = Counter(look.label for look in good)
    return {_class_name(data, label): counts[label] for label in range(data.classes)}


def _class_name(data: DataSet, label: int) -> str:
    return data.class_names[label] if label < len(data.class_names) else str(label)


def render(findings: DatasetReport) -> str:
    """The report for a person."""
    counts = findings.classes.values()
    lines = [
        "samples   " + ", ".join(f"{name} {count:,}" for name, count in findings.samples.items())
    ]
    if findings.classes:
        least, most = min(counts), max(counts)
        lines.append(f"classes   {len(findings.classes):,}, with {least:,} to {most:,} samples")
        empty = [name for name, count in findings.classes.items() if count == 0]
        if empty:
            lines.append(f"          without a sample: {', '.join(empty[:SHOWN])}")
    shapes = list(findings.shapes.items())
    shown = ", ".join(f"{shape} × {count:,}" for shape, count in shapes[:3])
    lines.append(f"shapes    {shown}{f' and {len(shapes) - 3:,} more' if len(shapes) > 3 else ''}")
    for title, found in (
        ("unreadable", findings.unreadable),
        ("the same content in two classes", findings.in_two_classes),
        ("the same content to train on and to score", findings.in_two_parts),
        ("not trained", findings.untrained),
        ("twice (allowed)", findings.duplicates),
    ):
        if found:
            lines.append(f"{title}: {len(found):,}")
            lines += [f"  {sentence}" for sentence in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"  and {len(found) - SHOWN:,} more (--json has all)")
    lines.append(
        "nothing to correct" if findings.problems == 0 else f"to correct: {findings.problems:,}"
    )
    return "\n".join(lines)


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.training.doctor", description=__doc__)
    parser.add_argument("--data", required=True, help="as in a configuration: name, path or URL")
    parser.add_argument("--seed", type=int, default=0, help="of the split, as in the run")
    parser.add_argument("--most", type=int, help="samples looked at in each part; all by default")
    parser.add_argument("--context-length", type=int, default=1024, help="for token files")
    parser.add_argument("--token-type", choices=("uint16", "uint32"), default="uint16")
    parser.add_argument("--processes", type=int, default=usable_cores())
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")
    options = parser.parse_args()
    # Empty files are findings here, not a reason to stop.
    data_options = DataOptions(
        context_length=options.context_length, token_type=options.token_type, on_bad_sample="skip"
    )
    try:
        data = load_data(options.data, options.seed, data_options)
    except (ConfigError, DataUnavailableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    findings = examine(data, options.most, options.processes)
    print(json.dumps(asdict(findings), indent=1) if options.json else render(findings))
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Saving and reading checkpoints without a gang: formats, shares, folders, what is refused."""

from __future__ import annotations

import itertools
import json
import math
import mmap
import random
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.training.checkpoint import (
    CheckpointEngine,
    CheckpointFolder,
    CheckpointReader,
    KeepRule,
    Writer,
    load_checkpoint,
    read_manifest,
)
from trainer.training.checkpoint import __main__ as command
from trainer.training.checkpoint.files import write_pieces
from trainer.training.checkpoint.manifest import seal
from trainer.training.checkpoint.tensor_slices import CUT_LEAST_BYTES, pieces_of
from trainer.training.training_errors import CheckpointCorruptError


def header(step: int, final: bool = False) -> dict[str, Any]:
    return {"step": step, "total_steps": 9, "final": final, "world_size": 1, "fence": 1}


def trees(value: float = 1.0, rows: int = 10) -> dict[str, Any]:
    return {
        "weights": {"layer": torch.arange(1000.0) * value, "wide": torch.full((rows, 8), value)},
        "training_state": {"place": {"step": 3}},
    }


def saved(folder: Path, step: int = 3, value: float = 1.0) -> Path:
    """One checkpoint, written by a process of its own as far as pruning can tell."""
    engine = CheckpointEngine(CheckpointFolder(folder))
    engine.save(header(step), trees(value), {}, hurried=True)
    (result,) = engine.take_results()
    assert result.error is None
    assert result.path is not None
    return result.path


def test_every_kind_of_value_and_tensor_comes_back(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
    numbers = {str(kind): torch.rand(5, 3, generator=generator).to(kind) for kind in kinds}
    whole = {f"i{n}": torch.tensor([1, 2, 3], dtype=getattr(torch, f"int{n}")) for n in (8, 16, 64)}
    state: dict[str, Any] = {
        **numbers,
        **whole,
        "flags": torch.tensor([True, False, True]),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "empty": torch.empty(0, 4),
        "one number": torch.tensor(0.1, dtype=torch.float64),
        "turned": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        "channels last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "nested": {3: [1, (2.5, None, "x")], 4: OrderedDict(a=True)},
        "$": {"a mark of ours": 1},
        "not finite": [math.inf, -math.inf],
        "exact": 0.1 + 0.2,
    }
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    own = {"random.0.torch": torch.get_rng_state()}
    engine.save(header(1), {"weights": {}, "training_state": state}, own, hurried=True)
    (result,) = engine.take_results()
    assert result.path is not None, result.error
    found = load_checkpoint(result.path)[1]["training_state"]
    assert found.keys() == state.keys()
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            assert found[key].dtype == value.dtype
            left, right = (each.contiguous().reshape(-1) for each in (found[key], value))
            assert torch.equal(left.view(torch.uint8), right.view(torch.uint8)), key
        else:
            assert found[key] == value
    reader = CheckpointReader(result.path)
    assert torch.equal(reader.tensors("training_state")["random.0.torch"], own["random.0.torch"])


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    with pytest.raises(TypeError, match=r"optimizer\.0\.function: a checkpoint holds .*, not type"):
        engine.save(header(1), {"weights": {"optimizer": [{"function": int}]}}, {})
    with pytest.raises(TypeError, match="keys are str or int"):
        engine.save(header(1), {"weights": {"a": {(1, 2): 3}}}, {})


def test_a_save_keeps_the_state_of_its_moment(tmp_path: Path) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    state = trees()
    engine.prepare(state, {})
    for step in (1, 2, 3):
        state["weights"]["layer"].fill_(float(step))
        engine.save(header(step), state, {})
        state["weights"]["layer"].fill_(-1.0)
    engine.finish()
    results = engine.take_results()
    assert [(each.step, each.error) for each in results] == [(1, None), (2, None), (3, None)]
    for step in (2, 3):
        found = load_checkpoint(tmp_path / f"step-{step:012d}")[1]["weights"]["layer"]
        assert torch.equal(found, torch.full((1000,), float(step)))


def test_the_state_may_change_its_shape_between_saves(tmp_path: Path) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    for step, rows in ((1, 10), (2, 300_000), (3, 4)):
        engine.save(header(step), trees(step, rows), {})
    engine.finish()
    assert [each.error for each in engine.take_results()] == [None] * 3
    wide = load_checkpoint(tmp_path / f"step-{3:012d}")[1]["weights"]["wide"]
    assert torch.equal(wide, torch.full((4, 8), 3.0))


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_shares_cover_every_row_once_and_are_alike_in_size(parts: int) -> None:
    dice = random.Random(parts)
    tensors = {
        f"t{n}": torch.empty(dice.choice([(), (3,), (700, 900), (50_000, 64), (1, 10**6)]))
        for n in range(30)
    }
    shares = [pieces_of(tensors, part, parts) for part in range(parts)]
    for key, tensor in tensors.items():
        mine = [piece for share in shares for piece in share if piece.key == key]
        rows = sorted((piece.first, len(piece.source) if tensor.dim() else 1) for piece in mine)
        assert rows[0][0] == 0
        assert all(first + count == then for (first, count), (then, _) in itertools.pairwise(rows))
        assert sum(count for _, count in rows) == (len(tensor) if tensor.dim() else 1)
        assert (len(mine) == 1) == mine[0].whole
    sizes = [sum(piece.bytes for piece in share) for share in shares]
    largest_uncut = max(each.numel() * 4 for each in tensors.values() if each.dim() == 2)
    assert max(sizes) - min(sizes) <= 2 * max(CUT_LEAST_BYTES, largest_uncut)


def test_ranks_write_their_shares_and_the_first_commits(tmp_path: Path) -> None:
    state: dict[str, dict[str, Any]] = {
        "weights": {"large": torch.rand(3000, 2000), "odd": torch.rand(7)},
        "training_state": {"place": {"step": 4}},
    }
    engines = [
        CheckpointEngine(CheckpointFolder(tmp_path), Writer(part, 3, 5)) for part in range(3)
    ]
    for part, engine in enumerate(engines):
        engine.save(header(4), state, {f"random.{part}.torch": torch.full((3,), float(part))})
    for engine in engines:
        engine.finish()
    (path,) = tmp_path.iterdir()
    names = {each.name for each in path.iterdir()}
    assert {f"weights-0000{part}-of-00003.safetensors" for part in (1, 2, 3)} <= names
    assert not [name for name in names if name.startswith("part-")]
    contents = load_checkpoint(path)[1]
    assert torch.equal(contents["weights"]["large"], state["weights"]["large"])
    assert contents["training_state"] == {"place": {"step": 4}}
    reader = CheckpointReader(path)
    own = reader.tensors("training_state")
    assert [own[f"random.{part}.torch"][0].item() for part in range(3)] == [0.0, 1.0, 2.0]
    sizes = [(path / f"weights-0000{part}-of-00003.safetensors").stat().st_size for part in (1, 2)]
    assert abs(sizes[0] - sizes[1]) < 64_000


def test_verification_can_be_shared_and_still_covers_all(tmp_path: Path) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    large = {"weights": {"large": torch.rand(5_000_000)}, "training_state": {}}
    engine.save(header(1), large, {}, hurried=True)
    path = tmp_path / f"step-{1:012d}"
    for place in (0.1, 0.5, 0.9):
        flip(path / "weights.safetensors", place)
        finders = [part for part in range(3) if not verifies(path, part, 3)]
        assert len(finders) == 1
        flip(path / "weights.safetensors", place)
    assert all(verifies(path, part, 3) for part in range(3))


def test_a_share_that_cannot_be_written_fails_the_checkpoint_on_all(tmp_path: Path) -> None:
    engines = [CheckpointEngine(CheckpointFolder(tmp_path), Writer(part, 2)) for part in range(2)]
    blocked = engines[0].folder.temporary(1, 0, 1) / "training_state-00002-of-00002.safetensors"
    blocked.mkdir(parents=True)
    for part, engine in enumerate(engines):
        engine.save(header(1), trees(), {f"random.{part}.x": torch.zeros(1)})
    for engine in engines:
        engine.finish()
    assert [engine.take_results()[0].error for engine in engines] == ["Is a directory"] * 2
    assert CheckpointFolder(tmp_path).complete() == []


def test_only_the_newest_two_stay_with_every_third_and_the_best(tmp_path: Path) -> None:
    earlier = saved(tmp_path, step=1)
    engine = CheckpointEngine(CheckpointFolder(tmp_path, KeepRule(newest=2, every=3)))
    for step in range(2, 12):
        engine.save(header(step), trees(), {}, best=step in (3, 4, 6))
    engine.finish()
    kept = [int(path.name.removeprefix("step-")) for path in CheckpointFolder(tmp_path).complete()]
    # 4, 7 and 10 are every third of this process; 6 is the best, 3 and 4 were; 1 is not ours.
    assert kept == [11, 10, 7, 6, 4, 1]
    assert earlier.exists()


def test_what_is_pruned_is_never_complete_by_its_name(tmp_path: Path) -> None:
    """Else a death half-way, or a look at that moment, would find one without all its files."""
    removed: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "shutil.rmtree" and str(arguments[0]).startswith(str(tmp_path)):
            removed.append(Path(arguments[0]).name)

    sys.addaudithook(watch)
    engine = CheckpointEngine(CheckpointFolder(tmp_path, KeepRule(newest=1)))
    for step in (1, 2, 3):
        engine.save(header(step), trees(), {}, hurried=True)
    assert [name.split(".")[0] for name in removed] == ["step-000000000001", "step-000000000002"]
    assert all(".tmp-" in name for name in removed)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000003"]


def test_the_same_step_can_be_saved_again_and_older_attempts_are_kept(tmp_path: Path) -> None:
    for step in (5, 6):
        saved(tmp_path, step)
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    for step in (2, 5, 7):
        engine.save(header(step), trees(step * 10.0), {}, hurried=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{step:012d}" for step in (5, 6, 7)]
    assert load_checkpoint(tmp_path / names[0])[1]["weights"]["wide"][0, 0].item() == 50.0


def test_files_that_may_be_missing_are_missed_together(tmp_path: Path) -> None:
    parts = {"weights": trees()["weights"], "averages": {"layer": torch.ones(9)}}
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    asked = {**header(4), "optional": ["averages"]}
    engine.save(asked, {**parts, "training_state": {"place": 4}}, {}, hurried=True)
    folder = engine.folder.target(4)
    assert read_manifest(folder)["optional"] == ["averages.safetensors"]
    assert torch.equal(load_checkpoint(folder)[1]["averages"]["layer"], torch.ones(9))
    (folder / "averages.safetensors").unlink()
    assert load_checkpoint(folder)[1].keys() == {"weights", "training_state"}
    (folder / "weights.safetensors").unlink()
    with pytest.raises(CheckpointCorruptError, match=r"weights\.safetensors: No such file"):
        load_checkpoint(folder)


def test_sweep_removes_half_written_folders_only(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "step-000000000004.tmp-1-1").mkdir()
    (tmp_path / "corrupt-step-000000000002").mkdir()
    CheckpointFolder(tmp_path).sweep()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "corrupt-step-000000000002", path]


def test_quarantine_never_overwrites(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    names = [folder.quarantine(saved(tmp_path)).name for _ in range(3)]
    step = f"corrupt-step-{3:012d}"
    assert names == [step, f"{step}-1", f"{step}-2"]
    assert folder.complete() == []


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "training_state.safetensors", "tree.json", "manifest.json"]
)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
def test_one_flipped_bit_is_found(tmp_path: Path, name: str, place: float) -> None:
    path = saved(tmp_path)
    flip(path / name, place)
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["weights.safetensors", "tree.json", "manifest.json"])
def test_a_short_or_missing_file_is_found(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    (path / name).write_bytes((path / name).read_bytes()[:-1])
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(path)
    (path / name).unlink()
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(path)


def test_another_format_and_files_outside_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    good = read_manifest(path)
    for change, sentence in (
        ({"format": 4}, "format 4, this trainer reads 2 and 3"),
        ({"files": [{"path": "../x", "size": 1, "chunks": []}]}, "outside its folder"),
        ({"hash": {"name": "md4"}}, "the hash 'md4' is unknown"),
    ):
        (path / "manifest.json").write_text(json.dumps(seal({**good, **change})))
        with pytest.raises(CheckpointCorruptError, match=sentence):
            load_checkpoint(path)


def test_the_command_shows_verifies_and_exports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path)
    weights = load_checkpoint(path)[1]["weights"]
    assert command.main([str(path), "--export", str(tmp_path / "weights.pt")]) == 0
    shown = capsys.readouterr().out
    assert "step 3 of 9" in shown
    assert "every byte verified" in shown
    exported = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert torch.equal(exported["layer"], weights["layer"])
    assert command.main([str(path), "--export", str(tmp_path / "all.safetensors")]) == 0
    again = saved_tensors(tmp_path / "all.safetensors")
    assert torch.equal(again["wide"], weights["wide"])
    flip(path / "weights.safetensors", 0.5)
    assert command.main([str(path), "--verify"]) == 65
    assert "weights.safetensors is damaged in chunk 0" in capsys.readouterr().err


@pytest.mark.parametrize("offset", [0, 1])
def test_what_cannot_go_past_the_page_cache_goes_through_it(tmp_path: Path, offset: int) -> None:
    """Memory that begins between two pages is refused by O_DIRECT, as some file systems do all."""
    memory = mmap.mmap(-1, 4 * 4096)
    memory.write(random.Random(6).randbytes(4 * 4096))
    content = memoryview(memory)[offset : offset + 2 * 4096]
    assert sum(write_pieces(tmp_path / "image", content, 5000, direct=True)) >= 5000
    assert (tmp_path / "image").read_bytes() == bytes(content[:5000])


def test_the_background_thread_lets_others_run(tmp_path: Path) -> None:
    """Its work is done in calls without the GIL: a Python loop goes on while it is busy."""
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    large = {"weights": {"large": torch.rand(20_000_000)}, "training_state": {}}
    engine.prepare(large, {})
    engine.finish()
    before = set(threading.enumerate())
    engine.save(header(1), large, {})
    turns = 0
    while engine.busy:
        turns += 1
    engine.finish()
    assert turns > 100
    # Threads of other tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def flip(path: Path, place: float) -> None:
    """Turns one bit around, in place."""
    with path.open("r+b") as file:
        at = int(place * file.seek(0, 2))
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def verifies(path: Path, part: int, parts: int) -> bool:
    try:
        CheckpointReader(path).verify(part, parts)
    except CheckpointCorruptError:
        return False
    return True


def saved_tensors(path: Path) -> dict[str, torch.Tensor]:
    """A safetensors file, read by its published format alone."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    entries.pop("__metadata__")
    kinds = {"F32": torch.float32}
    return {
        key: torch.frombuffer(
            bytearray(data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]),
            dtype=kinds[entry["dtype"]],
        ).view(entry["shape"])
        for key, entry in entries.items()
    }

"""Exports of a real checkpoint: compared, described, summed and signed; and what cannot be one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from torch import Tensor, nn

from tests.support.servers.finished_commands import run_command
from tests.training.gang.torchrun_gang import LIMIT_SECONDS, REPOSITORY, rank_variables
from tests.training.loop.one_rank import train_here
from trainer.training.checkpoint import load_checkpoint, read_manifest
from trainer.training.export import export
from trainer.training.extras.export_formats import (
    ExportDiffersError,
    compare,
    example_batch,
    to_torch_export,
)
from trainer.training.extras.model_card import as_markdown, model_card, seconds_in
from trainer.training.extras.signing import file_digest, sign
from trainer.training.models import build_model
from trainer.training.training_errors import CheckpointCorruptError, ConfigError

CONFIG = {
    "model": "mlp",
    "data": "digits",
    "steps": 25,
    "seed": 3,
    "checkpoint_interval_steps": 10,
    "ema_decay": 0.9,
    "profile_steps": [11, 12],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 25 steps at $3.60 an hour, with a trace and checkpoints."""
    folder = tmp_path_factory.mktemp("export") / "run"
    folder.mkdir()
    train(folder, None)
    return folder


@pytest.fixture(scope="module")
def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "step-000000000025"


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both formats, signed, by the command line."""
    folder = tmp_path_factory.mktemp("exported")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(pem)
    done = command(checkpoint, folder / "out", "onnx", "torch_export", "--sign", folder / "key.pem")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:2]] == [
        "model.onnx",
        "model.pt2",
    ]
    return folder / "out"


def train(folder: Path, resume: Path | None) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    variables = {**rank_variables(folder, resume, fence=2), "LOWTIDE_PRICE_PER_HOUR_USD": "3.6"}
    done = run_command(
        [sys.executable, "-m", "trainer.training.train", "--config", folder / "config.json"],
        timeout=LIMIT_SECONDS,
        cwd=REPOSITORY,
        env=variables,
    )
    assert done.returncode == 0, done.stderr


def command(checkpoint: Path, out: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    fixed: list[str | Path] = ["--checkpoint", checkpoint, "--out", out, "--format"]
    return run_command(
        [sys.executable, "-m", "trainer.training.export", *fixed, *arguments],
        timeout=LIMIT_SECONDS,
        cwd=REPOSITORY,
    )


@pytest.mark.full
def test_onnx_gives_the_scores_of_the_checkpoint(exported: Path, checkpoint: Path) -> None:
    import onnxruntime

    model = build_model("mlp", (1, 8, 8), 10).eval()
    model.load_state_dict(load_checkpoint(checkpoint)[1]["weights"])
    session = onnxruntime.InferenceSession(exported / "model.onnx")
    images = torch.randn(5, 1, 8, 8)
    (found,) = session.run(None, {"input": images.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(images))


@pytest.mark.full
def test_what_is_exported_is_summed_and_signed(exported: Path) -> None:
    lines = (exported / "SHA256SUMS").read_text().splitlines()
    names = ["model-card.json", "model-card.md", "model.onnx", "model.pt2"]
    assert lines == [f"{file_digest(exported / name)}  {name}" for name in names]
    key = load_pem_private_key((exported.parent / "key.pem").read_bytes(), None)
    public = key.public_key()
    assert isinstance(public, Ed25519PublicKey)
    signature = (exported / "SHA256SUMS.sig").read_bytes()
    public.verify(signature, (exported / "SHA256SUMS").read_bytes())
    assert sorted(path.name for path in exported.iterdir()) == sorted(
        [*names, "SHA256SUMS", "SHA256SUMS.sig"]
    )
    assert [path.name for path in exported.parent.glob("*.tmp-*")] == []


@pytest.mark.full
def test_the_card_says_what_the_model_is_and_what_it_cost(exported: Path, checkpoint: Path) -> None:
    card = json.loads((exported / "model-card.json").read_text())
    manifest = read_manifest(checkpoint)
    assert card["architecture"] == {
        "model": "mlp",
        "options": {},
        "parameters": 9_610,
        "input_shape": [1, 8, 8],
        "classes": 10,
        "class_names": list("0123456789"),
        "weights": "trained",
    }
    assert card["metrics"] == manifest["metrics"]
    assert card["checkpoint"] == {"step": 25, "digest": manifest["digest"]}
    # 25 batches of 64 of 1,257 samples: once through, and 343 more.
    data = {"data": "digits", "train_samples": 1257, "seed": 3, "epoch": 1, "sample": 343}
    assert card["data"] == data
    seconds = card["time"]["seconds"]
    assert sum(card["time"]["buckets"].values()) == pytest.approx(seconds)
    assert card["time"]["goodput"] == card["time"]["buckets"]["useful_step"] / seconds
    assert card["cost_usd"] == pytest.approx(3.6 * seconds / 3600)
    text = (exported / "model-card.md").read_text()
    assert "# mlp on digits" in text
    assert "| Parameters | 9,610 |" in text
    assert "| Read up to | epoch 1, sample 343 of the order of seed 3 |" in text
    assert f"Checkpoint digest: `{manifest['digest']}`" in text


@pytest.mark.full
def test_a_card_without_a_price_says_so(checkpoint: Path) -> None:
    manifest = read_manifest(checkpoint)
    manifest["about"]["usd_per_hour"] = None
    card = model_card(manifest, 9_610, "average")
    assert card["cost_usd"] is None
    assert "| Cost so far | not known: no price was told |" in as_markdown(card)


@pytest.mark.full
def test_time_is_carried_from_attempt_to_attempt(run: Path, tmp_path: Path) -> None:
    first = min((run / "checkpoints").iterdir())  # while one is written, the next is not begun
    before = seconds_in(read_manifest(first))
    folder = tmp_path / "second"
    folder.mkdir()
    train(folder, first)
    after = seconds_in(read_manifest(folder / "checkpoints" / "step-000000000025"))
    own = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()][-1]
    assert own["type"] == "goodput"
    assert after["startup"] == pytest.approx(before["startup"] + own["buckets"]["startup"])
    assert after["useful_step"] > before["useful_step"]


# In every run: the sum in test_goodput_ledger.py, the price in test_observing.py.
@pytest.mark.full
def test_every_second_of_a_run_is_in_one_bucket(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    started = json.loads((run / "started-rank0.json").read_text())
    last = lines[-1]
    assert (last["type"], last["final"]) == ("goodput", True)
    assert sum(last["buckets"].values()) == pytest.approx(last["total_seconds"])
    # The process began before its first marker, and the ledger with it.
    assert last["total_seconds"] >= last["at"] - started["at_seconds"]
    (traced,) = [line for line in lines if line["type"] == "profile"]
    assert Path(traced["trace"]).parent == run / "profiles"
    assert not [line for line in lines if line["type"] == "verdict"]  # too few steps for one
    steps = [line for line in lines if line["type"] == "step"]
    price = steps[-1]["usd_per_million_samples"]
    assert price == pytest.approx(1000 / steps[-1]["samples_per_second"])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, from its export of programs
def test_the_average_is_exported_when_it_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    (said,) = export(checkpoint, ["torch_export"], tmp_path / "out", "average", None)
    assert said.startswith("model.pt2: ")
    averages = load_checkpoint(checkpoint)[1]["training_state"]["averages"]["tensors"]
    model = build_model("mlp", (1, 8, 8), 10).eval()
    model.load_state_dict(averages)
    images = torch.randn(2, 1, 8, 8)
    loaded = torch.export.load(tmp_path / "out" / "model.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images))
    assert not (tmp_path / "out" / "SHA256SUMS.sig").exists()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, from its export of programs
def test_token_models_are_exported_too(tmp_path: Path) -> None:
    model = build_model("gpt_tiny", (16,), 50).eval()
    found = to_torch_export(model, example_batch((16,), 50), tmp_path / "model.pt2")
    assert found.absolute == 0.0


class Branching(nn.Module):
    """Looks at a value to decide what to do, which no graph can hold."""

    def forward(self, images: Tensor) -> Tensor:
        return images if images.sum().item() > 0 else -images


def test_a_model_that_no_graph_can_hold_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--format torch_export: torch cannot express this model"):
        to_torch_export(Branching().eval(), example_batch((4,), 9), tmp_path / "model.pt2")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda batch: batch * 1.01, "scores differ by"),
        (lambda batch: batch * float("nan"), "scores differ by inf"),
        (lambda batch: batch[:, :2], r"scores have the shape \(1, 2\), not \(1, 4\)"),
    ],
)
def test_other_scores_are_no_export(other: Any, sentence: str) -> None:
    with pytest.raises(ExportDiffersError, match=sentence):
        compare(nn.Identity(), other, torch.randn(3, 4))


def test_small_differences_are_measured() -> None:
    sample = torch.full((3, 4), 2.0)
    found = compare(nn.Identity(), lambda batch: batch + 0.001, sample)
    assert found.absolute == pytest.approx(0.001, rel=1e-3)
    assert found.relative == pytest.approx(0.0005, rel=1e-3)


def test_what_cannot_be_exported_leaves_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    config = {"model": "mlp", "data": "digits", "steps": 1, "eval_every_epochs": 0}
    checkpoint = train_here(tmp_path_factory.mktemp("run"), config).checkpoint(1)

    def fails(error: type[Exception], sentence: str, **changes: Any) -> None:
        given: dict[str, Any] = {
            "checkpoint": checkpoint,
            "formats": ["tensorrt"],
            "out": tmp_path / "out",
            "weights": "trained",
            "key_file": None,
        }
        with pytest.raises(error, match=sentence):
            export(**{**given, **changes})

    fails(ConfigError, "--format tensorrt needs NVIDIA's package `tensorrt`")
    fails(ConfigError, "--out: .* is there already", out=tmp_path)
    fails(ConfigError, "--sign: cannot read", formats=[], key_file=tmp_path / "none.pem")
    fails(CheckpointCorruptError, "manifest.json: No such file", checkpoint=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_an_ed25519_key_signs(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text("")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match=r"key\.pem is no private key in PEM"):
        sign(tmp_path, tmp_path / "key.pem")


# In every run `export` itself refuses, above; a process of its own is for exit code and last line.
@pytest.mark.full
def test_an_export_by_command_line_ends_with_one_line(tmp_path: Path) -> None:
    done = command(tmp_path / "none", tmp_path / "out", "onnx")
    assert done.returncode == 65
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1

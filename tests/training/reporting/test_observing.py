"""What looks at a run from the side: counting, traces, TensorBoard files, readings, verdicts."""

# NVIDIA names the functions of its library.
# ruff: noqa: N802

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainer.protocol.gpu_models import model_of_label
from trainer.protocol.model_figures import known_figures
from trainer.protocol.run_config import folder_variable
from trainer.protocol.train_options import OptionError, parse_options
from trainer.protocol.train_options.observing import ObservingOptions
from trainer.training.kernels.flops import (
    count_for,
    mfu,
    this_gpu,
    training_flops_of,
    usd_per_million_samples,
)
from trainer.training.loop.recomputing import recompute_blocks
from trainer.training.models import MODELS, build_model, model_blocks
from trainer.training.observer import Observed, Observer, usd_per_hour
from trainer.training.reporting.bottleneck_meter import BottleneckMeter
from trainer.training.reporting.goodput import Bucket, Ledger
from trainer.training.reporting.gpu_metrics import (
    GpuReadings,
    ReadingThread,
    allocator_numbers,
    open_readings,
)
from trainer.training.reporting.profiling import ProfileWindow
from trainer.training.reporting.progress import ProgressLog
from trainer.training.reporting.tensorboard_files import TensorBoardFiles
from trainer.training.training_errors import ConfigError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("resnet18", (3, 32, 32), 10),
        pytest.param("resnet50", (3, 224, 224), 1000, marks=pytest.mark.full),
        ("vit_small", (3, 32, 32), 10),
        ("gpt_tiny", (64,), 256),
        ("cnn", (3, 32, 32), 10),
        ("mlp", (1, 8, 8), 10),
    ],
)
def test_counting_agrees_with_the_closed_form(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    with torch.device("meta"):
        model = build_model(name, shape, classes)
    before = torch.get_rng_state()
    count = count_for(model, shape)
    assert torch.equal(torch.get_rng_state(), before)
    figures = known_figures(name, shape, classes)
    assert count is not None
    assert figures is not None
    assert count.parameters == figures.parameters
    assert count.forward_flops == figures.forward_flops
    # The image itself needs no gradient, so the first layer's backward pass is half: of a network
    # that has little else, up to a third of all.
    first = {"cnn": 0.03, "mlp": 1 / 3}.get(name, 0.02)
    assert count.training_flops == pytest.approx(figures.training_flops, rel=first)
    assert count.activation_bytes is not None
    tolerance = 0.01 if figures.family == "cnn" else 0.25
    kept = count.activation_bytes / 4
    assert kept == pytest.approx(figures.activation_elements, rel=tolerance)


def test_every_model_of_the_trainer_is_known_in_closed_form() -> None:
    for model in MODELS:
        shape = (64,) if model.startswith("gpt") else (3, 224, 224)
        assert known_figures(model, shape, 10) is not None, model


def test_half_precision_keeps_half_as_much() -> None:
    model = build_model("resnet18", (3, 32, 32), 10)
    whole, half = (count_for(model, (3, 32, 32), dtype) for dtype in (None, torch.bfloat16))
    assert whole is not None
    assert half is not None
    assert whole.activation_bytes is not None
    assert half.activation_bytes == pytest.approx(whole.activation_bytes / 2, rel=0.01)
    assert next(model.parameters()).grad is None
    assert int(model.get_buffer("bn1.num_batches_tracked")) == 0


def test_passes_that_are_computed_twice_are_not_used_twice() -> None:
    options = {"model_options": {"dropout": 0.1}}
    config = parse_options({"model": "vit_small", "data": "synthetic", "steps": 1, **options})
    model = build_model("vit_small", (3, 32, 32), 10, {"dropout": 0.1})
    plain = training_flops_of(config, model, (3, 32, 32), 10)
    assert plain is not None
    recompute_blocks(model_blocks(model))
    again = training_flops_of(config, model, (3, 32, 32), 10)
    assert again == pytest.approx(plain, rel=0.01)


class Unwilling(nn.Module):
    """Reads a value, which a tensor without storage does not have."""

    def forward(self, images: Tensor) -> Tensor:
        return images * float(images.sum().item())


def test_a_model_that_cannot_be_counted_is_not_guessed_at() -> None:
    assert count_for(Unwilling(), (1, 4, 4)) is None


@pytest.mark.parametrize(
    ("model", "options", "flops"),
    [
        ("resnet18", {}, 3 * 1.111e9),
        ("resnet18", {"model_options": {"a": 1}}, None),
        ("cnn", {}, 3 * 11.371776e6),
    ],
)
def test_operations_are_known_or_counted(
    model: str, options: dict[str, Any], flops: float | None
) -> None:
    config = parse_options({"model": model, "data": "synthetic", "steps": 1, **options})
    built = build_model(model, (3, 32, 32), 10)
    expected = flops or count_for(built, (3, 32, 32)).training_flops  # type: ignore[union-attr]
    found = training_flops_of(config, built, (3, 32, 32), 10)
    assert found == pytest.approx(expected, rel=1e-3)


def test_mfu_and_price() -> None:
    a100 = model_of_label("A100:80GB")
    assert a100 is not None
    # NVIDIA's 2,470 images a second of ResNet-50 are 19 % of 312 TFLOP/s.
    assert mfu(24.5e9, 2_470, 1, a100) == pytest.approx(0.19, abs=0.005)
    assert mfu(24.5e9, 2_470, 8, a100) == pytest.approx(0.19 / 8, abs=0.001)
    assert usd_per_million_samples(3.6, 1_000) == pytest.approx(1.0)
    assert this_gpu(CPU) is None


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    progress = ProgressLog(tmp_path / "progress.jsonl")
    files = TensorBoardFiles(tmp_path / "board", first_step=0)
    progress.also_tell(files.tell)
    for step in (1, 2):
        progress.write("step", step=step, total_steps=2, loss=1 / step, phase="train")
    progress.write("eval", step=2, test_accuracy=0.5)
    progress.write("phase", phase="train", step=2)
    files.close()
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert sorted(board.Tags()["scalars"]) == ["eval/test_accuracy", "train/loss"]
    assert [(one.step, one.value) for one in board.Scalars("train/loss")] == [(1, 1.0), (2, 0.5)]


def test_a_printed_line_says_its_type_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    progress.phase("eval", 20)
    progress.write("eval", step=20, test_accuracy=0.5)
    assert capsys.readouterr().out == "phase=eval step=20\neval step=20 test_accuracy=0.5\n"
    assert [line["step"] for line in lines_of(tmp_path, "phase")] == [20]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="tensorboard: cannot write to "):
        TensorBoardFiles(tmp_path / "file", first_step=0)


def test_a_window_of_steps_is_traced(tmp_path: Path) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    window = ProfileWindow(2, 3, tmp_path / "profiles", progress)
    for finished in range(5):
        window.before_step(finished)
        torch.ones(4, 4) @ torch.ones(4, 4)
        window.after_step(finished + 1)
    (line,) = lines_of(tmp_path, "profile")
    trace = json.loads(Path(line["trace"]).read_text())
    assert Path(line["trace"]).name == "steps-2-3-rank0.json"
    products = [event for event in trace["traceEvents"] if event.get("name") == "aten::mm"]
    assert len(products) == 2
    assert "aten::mm" in Path(line["table"]).read_text()
    assert len(list((tmp_path / "profiles").iterdir())) == 2


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("")
    progress = ProgressLog(tmp_path / "progress.jsonl")
    window = ProfileWindow(1, 1, tmp_path / "profiles", progress)
    window.before_step(0)
    window.close(0)
    (line,) = lines_of(tmp_path, "profile")
    assert "cannot be written" in line["error"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"profile_steps": [5, 4]}, "profile_steps: the last step, 4, is before 5"),
        ({"profile_steps": [1, 51]}, "at most 50 steps fit a trace"),
        ({"profile_steps": [1]}, "profile_steps: expected a list of 2 entries, got 1"),
        ({"profile_steps": 5}, "profile_steps: expected a list"),
        ({"tensorboard": True}, "tensorboard: expected"),
    ],
)
def test_bad_options_get_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options({"model": "cnn", "data": "digits", "steps": 1, **options})
    assert sentence in str(caught.value)


class Driver:
    """The part of NVIDIA's management library that is asked, for a GPU with some counters."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_ANY_TENSOR_UTIL = 2, 5
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, counts_activity: bool) -> None:
        self.counts_activity = counts_activity
        self.samples: set[int] = set()
        self._taken = 0

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> Any:
        return SimpleNamespace(gpu=87)

    def nvmlDeviceGetClockInfo(self, _handle: str, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1980}[clock]

    def nvmlDeviceGetPowerUsage(self, _handle: str) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Any:
        return SimpleNamespace(used=3 << 30)

    def nvmlGpmQueryDeviceSupport(self, _handle: str) -> Any:
        return SimpleNamespace(isSupportedDevice=int(self.counts_activity))

    def nvmlGpmSampleAlloc(self) -> int:
        self._taken += 1
        self.samples.add(self._taken)
        return self._taken

    def nvmlGpmSampleGet(self, _handle: str, sample: int) -> int:
        return sample

    def nvmlGpmSampleFree(self, sample: int) -> None:
        self.samples.remove(sample)

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace(value=None) for _ in range(98)])

    def nvmlGpmMetricsGet(self, question: Any) -> Any:
        assert (question.version, question.numMetrics) == (1, 2)
        for metric in question.metrics[: question.numMetrics]:
            metric.value = 10.0 * metric.metricId + question.sample2 - question.sample1
        return question


def test_a_reading_holds_what_the_gpu_counts() -> None:
    old = GpuReadings(Driver(counts_activity=False), "GPU-1")
    expected = {"gpu_utilization": 87.0, "gpu_sm_clock_mhz": 1980.0, "gpu_memory_used_mb": 3072.0}
    assert old.read() == old.read() == expected
    driver = Driver(counts_activity=True)
    hopper = GpuReadings(driver, "GPU-1")
    assert hopper.read() == expected
    for _ in range(3):
        assert hopper.read() == {
            **expected,
            "gpu_sm_activity": 21.0,
            "gpu_tensor_activity": 51.0,
        }
    assert len(driver.samples) == 1


def test_what_the_allocator_keeps_and_does_not_use() -> None:
    stats = {
        "reserved_bytes.all.current": 8 << 20,
        "allocated_bytes.all.current": 6 << 20,
        "inactive_split_bytes.all.current": 1 << 20,
    }
    assert allocator_numbers(stats) == {
        "gpu_memory_reserved_mb": 8.0,
        "gpu_memory_allocated_mb": 6.0,
        "gpu_memory_fragmentation": 0.125,
    }
    assert allocator_numbers({}) == {}
    assert open_readings(CPU) is None


def test_readings_come_from_a_thread_that_ends() -> None:
    told: list[dict[str, float]] = []
    twice = threading.Event()

    def tell(reading: dict[str, float]) -> None:
        told.append(reading)
        if len(told) == 2:
            twice.set()

    thread = ReadingThread(lambda: {"gpu_utilization": 5.0}, tell, seconds=0.001)
    assert twice.wait(30)
    thread.close()
    assert told[0] == {"gpu_utilization": 5.0}
    assert not any(each.name == "gpu-readings" for each in threading.enumerate())


def test_a_window_gives_shares_of_the_training_alone() -> None:
    now = [0.0]
    ledger = Ledger(0.0, lambda: now[0])
    spend = {"startup": 50, "useful_step": 4, "data_wait": 5, "eval": 70, "checkpoint_stall": 1}
    spend["pause"] = 10
    window = BottleneckMeter(ledger)
    assert window.shares(None, 1) is None
    for name, seconds in spend.items():
        ledger.enter(Bucket(name))
        now[0] += seconds
    ledger.all_reduce_seconds += 1
    shares = window.shares(gpu_utilization=12.0, ranks=2)
    assert shares is not None
    assert window.seconds() == 20
    assert (shares.data_wait, shares.all_reduce, shares.checkpoint) == (0.25, 0.05, 0.05)
    assert shares.pause == 0.5
    assert shares.compute == pytest.approx(0.15)
    assert (shares.gpu_utilization, shares.ranks) == (12.0, 2)
    window.restart()
    assert window.shares(None, 1) is None


def observer_in(
    folder: Path, progress: ProgressLog, variables: dict[str, str] | None = None, **options: Any
) -> Observer:
    run = Observed(folder / "checkpoints", CPU, 1, 64, 0, lambda: None)
    prices = {"LOWTIDE_PRICE_PER_HOUR_USD": "3.6", **(variables or {})}
    return Observer(ObservingOptions(**options), run, progress, prices)


class Stepping(ProgressLog):
    """Progress whose every step takes ``seconds`` of a clock of its own."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(path)
        self.now = 0.0
        self.ledger = Ledger(0.0, lambda: self.now)
        self._seconds = seconds

    def write(self, kind: str, /, **values: Any) -> None:
        if kind == "step":
            self.now += self._seconds
        super().write(kind, **values)


@pytest.mark.parametrize(("steps", "seconds"), [(12, 9.0), (49, 9.0), (100, 0.01)])
def test_of_few_steps_or_seconds_nothing_is_concluded(
    tmp_path: Path, steps: int, seconds: float
) -> None:
    progress = Stepping(tmp_path / "progress.jsonl", seconds)
    observer = observer_in(tmp_path, progress)
    progress.phase("train", 0)
    for step in range(1, steps + 1):
        progress.write("step", step=step, loss=0.5)
        observer.after_step(step)
    observer.close(steps)
    assert lines_of(tmp_path, "verdict") == []


@pytest.mark.parametrize(("steps", "said"), [(59, 0), (60, 1)])
def test_one_save_in_a_short_run_is_no_reason_to_save_less(
    tmp_path: Path, steps: int, said: int
) -> None:
    progress = Stepping(tmp_path / "progress.jsonl", 0.905)
    observer = observer_in(tmp_path, progress)
    progress.phase("checkpoint", 0)
    progress.now += 6.0
    progress.phase("train", 0)
    for step in range(1, steps + 1):
        progress.write("step", step=step, loss=0.5)
    observer.close(steps)
    assert [line["bound"] for line in lines_of(tmp_path, "verdict")] == ["checkpoint"] * said


def test_a_short_run_gets_its_verdict_at_the_end(tmp_path: Path) -> None:
    progress = Stepping(tmp_path / "progress.jsonl", 0.064)
    observer = observer_in(tmp_path, progress, tensorboard="auto", profile_steps=(19, 30))
    progress.phase("train", 0)
    for step in range(50):
        observer.before_step(step)
        numbers = observer.step_numbers(seconds=0.064)
        progress.write("step", step=step + 1, loss=0.5, **numbers)
        observer.after_step(step + 1)
    observer.close(50)
    observer.close(50)
    assert numbers == {"usd_per_million_samples": pytest.approx(1.0)}
    (said,) = lines_of(tmp_path, "verdict")
    assert (said["step"], said["bound"]) == (50, "compute")
    assert said["share_compute"] > 0.9
    assert "Computing takes" in said["sentence"]
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] != []
    (traced,) = lines_of(tmp_path, "profile")
    assert (traced["first_step"], traced["step"]) == (19, 30)


def test_outputs_of_these_names_get_the_files(tmp_path: Path) -> None:
    """What lies beside the checkpoints goes with the machine; an output is uploaded."""
    names = {"tensorboard": tmp_path / "a", "profiles": tmp_path / "b"}
    variables = {folder_variable("OUTPUT", name): str(path) for name, path in names.items()}
    progress = ProgressLog(tmp_path / "progress.jsonl")
    observer = observer_in(tmp_path, progress, variables, tensorboard="auto", profile_steps=(1, 2))
    for step in range(2):
        observer.before_step(step)
        progress.write("step", step=step + 1, loss=0.5)
        observer.after_step(step + 1)
    observer.close(2)
    (traced,) = lines_of(tmp_path, "profile")
    assert Path(traced["trace"]).parent == tmp_path / "b"
    assert list((tmp_path / "a").glob("events.*")) != []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "progress.jsonl"]


def test_readings_of_a_window_make_its_verdict(tmp_path: Path) -> None:
    progress = Stepping(tmp_path / "progress.jsonl", 0.064)
    observer = observer_in(tmp_path, progress)
    observer.tell_reading({"gpu_utilization": 90.0})  # before the first step nobody is told
    progress.phase("train", 0)
    for step in range(1, 51):
        progress.write("step", step=step, loss=0.5, **observer.step_numbers(0.064))
        observer.tell_reading({"gpu_utilization": float(step % 2), "gpu_power_watts": 90.0})
    observer.close(50)
    assert len(lines_of(tmp_path, "gpu")) == 50
    assert lines_of(tmp_path, "step")[2]["gpu_utilization"] == 0.0
    (said,) = lines_of(tmp_path, "verdict")
    assert said["bound"] == "small_steps"
    assert said["gpu_utilization"] == pytest.approx(115 / 51)
    assert "The GPU is busy 2 % of the time" in said["sentence"]


def test_only_rank_0_looks(tmp_path: Path) -> None:
    for progress in (ProgressLog(None), ProgressLog(tmp_path / "p.jsonl", phases_only=True)):
        observer = observer_in(tmp_path, progress, tensorboard="auto", profile_steps=(1, 2))
        for step in range(30):
            observer.before_step(step)
            observer.after_step(step + 1)
        observer.close(30)
    assert [path.name for path in tmp_path.iterdir()] == ["p.jsonl"]
    assert (tmp_path / "p.jsonl").read_text() == ""


@pytest.mark.parametrize("price", ["", "free", "-1", "nan", "0"])
def test_a_price_that_was_not_told_is_no_price(tmp_path: Path, price: str) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    run = Observed(tmp_path, CPU, 1, 64, 0, lambda: 3.0)
    prices = {"LOWTIDE_PRICE_PER_HOUR_USD": price}
    assert Observer(ObservingOptions(), run, progress, prices).step_numbers(1.0) == {}


def test_a_price_in_the_file_is_newer_than_the_one_of_the_start(tmp_path: Path) -> None:
    path = tmp_path / "hazard.json"
    told = {"LOWTIDE_PRICE_PER_HOUR_USD": "3.6", "LOWTIDE_HAZARD_FILE": str(path)}
    assert usd_per_hour(told) == 3.6
    path.write_text('{"per_hour": 0.5}')
    assert usd_per_hour(told) == 3.6
    path.write_text('{"per_hour": 0.5, "price_per_hour_usd": 7.2}')
    assert usd_per_hour(told) == 7.2


def lines_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return [line for line in lines if line["type"] == kind]

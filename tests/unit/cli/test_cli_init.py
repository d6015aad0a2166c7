"""`lowtide init`: what a folder tells of its job, and a file that is a valid spec as it stands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.jobs.init import job_name
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.spec_text import parse_spec_text
from tests.support.cli.command_line import CommandLine, Ran
from trainer.agent.machine.script_modules import place_script_modules

PLAIN = "import torch\nprint(torch.__version__)\n"
RANKS = "import torch.distributed as dist\ndist.init_process_group()\n"
FLAGS = 'parser.add_argument("--ckpt")\nparser.add_argument("--resume-from")\n'


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home", {})


def folder_with(tmp_path: Path, **files: str) -> Path:
    """Files by name, with `__` for a dot."""
    folder = tmp_path / "My Project_1"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def spec_in(folder: Path) -> JobSpec:
    data = parse_spec_text((folder / "job.yaml").read_bytes(), "yaml")
    assert data["workdir"] == "."
    return parse_spec({**data, "workdir": "sha256:" + "0" * 64})


def test_a_plain_script_is_started_by_python_and_told_that_it_saves_nothing(
    cli: CommandLine, tmp_path: Path
):
    folder = folder_with(tmp_path, train__py=PLAIN, requirements__txt="numpy\n")
    ran = cli.ok("init", str(folder))
    spec = spec_in(folder)
    assert (spec.name, spec.run) == ("my-project-1", "python train.py")
    assert spec.setup == "pip install -r requirements.txt"
    assert [str(one) for one in spec.gpu_choices] == ["16GB..:1"]
    assert "train.py saves nothing that Lowtide sees" in ran.errors
    assert f"then: lowtide submit {folder / 'job.yaml'}" in ran.out


def test_ranks_gpus_and_flags_are_found_in_the_script_and_in_what_starts_it(
    cli: CommandLine, tmp_path: Path
):
    start = "torchrun --nproc_per_node=4 main.py\n"
    project = "[project]\nname = 'x'\n"
    folder = folder_with(tmp_path, main__py=RANKS + FLAGS, run__sh=start, pyproject__toml=project)
    cli.ok("init", str(folder), "--name", "bert")
    spec = spec_in(folder)
    assert spec.run == (
        "torchrun $LOWTIDE_TORCHRUN_ARGS main.py --ckpt $LOWTIDE_CHECKPOINT_DIR "
        '--resume-from "$LOWTIDE_RESUME_DIR"'
    )
    assert (spec.name, spec.setup, spec.gpus_per_node) == ("bert", "pip install .", 4)
    said = cli.fails(2, "init", str(folder)).errors
    assert "already exists; keep it, or replace it with --force" in said
    cli.ok("init", str(folder), "--force", "--gpu", "A100:80GB:8")
    assert str(spec_in(folder).gpu_choices[0]) == "A100:80GB:8"


def test_a_script_for_several_gpus_is_started_on_each_whatever_it_says_itself(
    cli: CommandLine, tmp_path: Path
):
    folder = folder_with(
        tmp_path, train__py=PLAIN, run__sh="torchrun --nproc_per_node=2 train.py\n"
    )
    cli.ok("init", str(folder))
    spec = spec_in(folder)
    assert (spec.run, spec.gpus_per_node) == ("torchrun $LOWTIDE_TORCHRUN_ARGS train.py", 2)


@pytest.mark.parametrize("script", ["my model.py", "try #2.py", "a: b.py", "naïve.py", "it's.py"])
def test_a_script_may_have_any_name(cli: CommandLine, tmp_path: Path, script: str):
    folder = folder_with(tmp_path)
    (folder / script).write_text(PLAIN)
    cli.ok("init", str(folder))
    assert shlex.split(spec_in(folder).run or "") == ["python", script]


def test_the_example_that_is_written_is_the_one_of_the_docs(cli: CommandLine, tmp_path: Path):
    folder = tmp_path / "mine"
    ran: Ran = cli.ok("init", str(folder), "--example")
    shown = Path("docs/examples/plain_loop/train.py")
    assert (folder / "train.py").read_text() == shown.read_text()
    spec = spec_in(folder)
    assert spec.run == "torchrun $LOWTIDE_TORCHRUN_ARGS train.py"
    assert "saves nothing" not in ran.errors
    assert "already exists" in cli.fails(2, "init", str(folder), "--example", "--force").errors


def test_the_example_trains_and_saves_as_it_was_written(cli: CommandLine, tmp_path: Path):
    """One rank of it, without a control plane; gangs that are interrupted: tests/e2e."""
    folder, saved = tmp_path / "mine", tmp_path / "checkpoints"
    cli.ok("init", str(folder), "--example")
    place_script_modules(tmp_path / "modules")
    variables = {
        "PYTHONPATH": str(tmp_path / "modules"), "STEPS": "4", "SAVE_EVERY": "2",
        "CUDA_VISIBLE_DEVICES": "", "LOWTIDE_FENCE": "1", "LOWTIDE_CHECKPOINT_DIR": str(saved),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "starts after step 0 on cpu" in ran.stdout
    assert len(list(saved.glob("*/state.pt"))) == 2, "one at each of two saves"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "has no Python script; name its folder, or write one with `lowtide init"),
        ({"a__py": "", "b__py": ""}, "has several scripts and no train.py (a.py, b.py); rename"),
    ],
)
def test_a_folder_without_one_script_is_told_what_to_do(
    cli: CommandLine, tmp_path: Path, files: dict[str, str], told: str
):
    folder = folder_with(tmp_path, **files)
    assert told in cli.fails(2, "init", str(folder)).errors
    assert not (folder / "job.yaml").exists()


def test_options_that_make_no_job_write_nothing(cli: CommandLine, tmp_path: Path):
    folder = folder_with(tmp_path, train__py=PLAIN)
    assert "did you mean 'A10G'" in cli.fails(2, "init", str(folder), "--gpu", "A10O").errors
    assert "use 1 to 63 lower-case letters" in cli.fails(2, "init", str(folder), "-n", "A B").errors
    assert not (folder / "job.yaml").exists()
    assert "is not a folder" in cli.fails(2, "init", str(tmp_path / "absent")).errors


def test_data_that_would_travel_with_the_job_is_pointed_at(cli: CommandLine, tmp_path: Path):
    folder = folder_with(tmp_path, train__py=PLAIN)
    with (folder / "data.bin").open("wb") as file:
        file.truncate(200 << 20)
    said = cli.ok("init", str(folder)).errors
    assert "The folder holds 200.0 MiB; packed it may have at most 100.0 MiB" in said
    assert "data.bin (200.0 MiB)" in said


@pytest.mark.parametrize(
    ("folder", "name"), [("/x/Bert_FT", "bert-ft"), ("/x/--", "my-job"), ("/" + "a" * 80, "a" * 63)]
)
def test_a_job_is_named_after_its_folder(folder: str, name: str):
    assert job_name(Path(folder)) == name

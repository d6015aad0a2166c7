"""`lowtide init`: a job file for a folder with a training script, or an example to begin with.

Lives here: what is read from the folder, and the file that is written. Not here: what the fields
mean (`app.domain.spec.job_spec`), or what of the folder would travel (`workdir_files`).
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.client.failures import CommandFailed
from app.cli.client.local_command import ending_well
from app.cli.client.terminal import Terminal
from app.cli.client.wording import plural, size
from app.cli.jobs.spec_edits import SpecDraft
from app.cli.jobs.workdir_files import ARCHIVE_BYTES_MAX, find_members
from app.domain.market.gpu_choice import MAX_GPUS_PER_NODE
from app.domain.spec.names import NAME_LENGTH_MAX

JOB_FILE: Final = "job.yaml"
_EXAMPLE: Final = Path(__file__).parents[1] / "example" / "train.py.txt"
_SCRIPTS: Final = ("train.py", "main.py", "run.py", "finetune.py", "pretrain.py")
_ANY_GPU: Final = "16GB.."
_READ_BYTES_MAX: Final = 1 << 20
_FILES_READ_MAX: Final = 200

# What tells that a script expects to be started once for each GPU.
_MANY_RANKS: Final = re.compile(
    r"init_process_group|LOCAL_RANK|DistributedDataParallel|accelerate|deepspeed|lightning|"
    r"transformers|torch\.distributed|lowtide_hooks"
)
_RANKS: Final = re.compile(
    r"--nproc[_-]per[_-]node[= ](\d{1,2})\b|--num[_-]processes[= ](\d{1,2})\b|"
    r"--gpus[_-]per[_-]node[= ](\d{1,2})\b|--gres=gpu:(?:\w+:)?(\d{1,2})\b"
)
_STARTERS: Final = frozenset({".sh", ".slurm", ".sbatch", ".md", ".yaml", ".yml", ""})
# Flags under which scripts usually take the folders that Lowtide names.
_FLAGS: Final = (
    (("--ckpt", "--checkpoint-dir", "--checkpoint_dir", "--ckpt-dir", "--ckpt_dir"),
     "$LOWTIDE_CHECKPOINT_DIR"),
    (("--resume", "--resume-from", "--resume_from", "--resume-dir", "--resume_dir"),
     '"$LOWTIDE_RESUME_DIR"'),
)  # fmt: skip

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the script is.")]
Gpu = Annotated[
    str | None, typer.Option(metavar="GPU", help="Like A100:80GB:8. [default: from the folder]")
]
Name = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="The job's name.")]


@dataclass(frozen=True)
class FolderFindings:
    """What a folder tells of its job. saves: the script takes a folder for checkpoints, or uses
    the hooks. gpus: processes that its own starting scripts ask for on a machine; 1 unless told.
    """

    script: str
    command: str
    setup: str | None
    gpus: int
    saves: bool


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("init")(init)


def init(
    folder: Folder = Path(),
    gpu: Gpu = None,
    name: Name = None,
    example: Annotated[
        bool, typer.Option("--example", help="Also write a train.py that survives interruptions.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing job.yaml.")] = False,
) -> None:
    """Write job.yaml for the training script in a folder.

    Finds train.py (or the only Python file), requirements.txt or pyproject.toml, and how many
    GPUs its starting scripts ask for. Nothing is submitted; check the file first.
    """
    terminal = Terminal()
    with ending_well(terminal):
        target = folder / JOB_FILE
        if target.exists() and not force:
            raise CommandFailed(f"{target} already exists; keep it, or replace it with --force")
        if example:
            _write_example(folder)
        if not folder.is_dir():
            raise CommandFailed(f"{folder} is not a folder; name the one that holds your script")
        found = read_folder(folder)
        text = job_text(found, name or job_name(folder), gpu)
        _check(text, target)
        _write(target, text)
        terminal.line(f"{target} is written: {_told(found, gpu)}.")
        for note in _notes(folder, found):
            terminal.note(note)
        terminal.line(f"Check it, then: lowtide submit {target}")


def read_folder(folder: Path) -> FolderFindings:
    """What the folder tells. Raises CommandFailed without a script, or with several to choose."""
    script = _script_in(folder)
    text = _text_of(folder / script)
    flags = "".join(_flag(text, names, value) for names, value in _FLAGS)
    gpus = _gpus_asked_for(folder)
    start = "torchrun $LOWTIDE_TORCHRUN_ARGS" if gpus > 1 or _MANY_RANKS.search(text) else "python"
    saves = "LOWTIDE_CHECKPOINT_DIR" in flags + text or "lowtide_hooks" in text
    command = f"{start} {shlex.quote(script)}{flags}"
    return FolderFindings(script, command, _setup_of(folder), gpus, saves)


def job_text(found: FolderFindings, name: str, gpu: str | None) -> str:
    """The job file."""
    setup = "" if found.setup is None else f"setup: {found.setup}\n"
    asked = gpu or f"{_ANY_GPU}:{found.gpus}"
    saves = "" if found.saves else (
        "# The script starts from the beginning after an interruption until it saves checkpoints:\n"
        "# see docs/your-own-script.md.\n"
    )  # fmt: skip
    return (
        f"name: {name}\n"
        "workdir: .                # what .gitignore lists stays here\n"
        f"{setup}{saves}"
        f"run: {_as_yaml(found.command)}\n"
        f"resources: {{gpu: '{asked}'}}\n"
        "# With a deadline or a budget, say how much work it is:\n"
        "# deadline: 36h\n"
        "# budget_usd: 20\n"
        "# estimate: {hours: 10, gpu: V100}\n"
    )


def _as_yaml(command: str) -> str:
    """As it is, unless YAML would read something else: a comment, a mapping."""
    plain = not re.search(r": |:$| #|[^ -~]", command)
    return command if plain else json.dumps(command, ensure_ascii=False)


def job_name(folder: Path) -> str:
    """The folder's name as a job may be called."""
    letters = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return letters[:NAME_LENGTH_MAX].rstrip("-") or "my-job"


def _script_in(folder: Path) -> str:
    for name in _SCRIPTS:
        if (folder / name).is_file():
            return name
    others = sorted(path.name for path in folder.glob("*.py") if path.is_file())
    if len(others) == 1:
        return others[0]
    if not others:
        raise CommandFailed(
            f"{folder} has no Python script; name its folder, or write one with "
            f"`lowtide init {folder} --example`"
        )
    raise CommandFailed(
        f"{folder} has several scripts and no train.py ({', '.join(others[:5])}); rename the one "
        "that trains, or write job.yaml by hand (docs/job-spec.md)"
    )


def _gpus_asked_for(folder: Path) -> int:
    """The most processes on one machine that a starting script in the folder asks for."""
    asked = [1]
    files = [path for path in sorted(folder.iterdir()) if path.suffix in _STARTERS]
    for path in files[:_FILES_READ_MAX]:
        if path.is_file() and path.name != JOB_FILE:
            for groups in _RANKS.findall(_text_of(path)):
                asked += [int(one) for one in groups if one]
    return min(max(asked), MAX_GPUS_PER_NODE)


def _setup_of(folder: Path) -> str | None:
    if (folder / "requirements.txt").is_file():
        return "pip install -r requirements.txt"
    if "[project]" in _text_of(folder / "pyproject.toml"):
        return "pip install ."
    return None


def _flag(text: str, names: tuple[str, ...], value: str) -> str:
    given = next((name for name in names if re.search(rf"['\"]{name}['\"]", text)), None)
    return "" if given is None else f" {given} {value}"


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def _write_example(folder: Path) -> None:
    target = folder / "train.py"
    if target.exists():
        raise CommandFailed(f"{target} already exists; choose a folder without one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(target, _EXAMPLE.read_text("utf-8"))
    except OSError as error:
        raise CommandFailed(
            f"{folder} cannot be created: {error.strerror}; choose another folder"
        ) from error


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(
            f"{target} cannot be written: {error.strerror}; choose a folder in which you may write"
        ) from error


def _check(text: str, target: Path) -> None:
    """Raises CommandFailed for an option that makes no valid job."""
    from app.domain.spec.spec_text import parse_spec_text

    SpecDraft(str(target), parse_spec_text(text.encode(), "yaml"), target.parent).spec()


def _told(found: FolderFindings, gpu: str | None) -> str:
    machine = gpu or f"{plural(found.gpus, 'GPU')} of 16 GB or more"
    setup = "" if found.setup is None else f", after `{found.setup}`"
    return f"`{found.command}`{setup}, on {machine}"


def _notes(folder: Path, found: FolderFindings) -> list[str]:
    notes = []
    if not found.saves:
        notes.append(
            f"{found.script} saves nothing that Lowtide sees: after an interruption it starts from "
            "the beginning. docs/your-own-script.md has the calls that change this."
        )
    members = find_members(folder)
    content = sum(member.size_bytes for member in members)
    if content > ARCHIVE_BYTES_MAX:
        largest = max(members, key=lambda member: member.size_bytes)
        notes.append(
            f"The folder holds {size(content)}; packed it may have at most "
            f"{size(ARCHIVE_BYTES_MAX)}: list data in .gitignore. The largest file is "
            f"{largest.name} ({size(largest.size_bytes)})."
        )
    return notes

"""The import rules hold, and each of them bites when it is broken.

The contracts themselves are in pyproject.toml under [tool.importlinter].
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT, imported_modules, source_files

_SDKS = ("boto3", "botocore", "google.cloud", "google.auth", "torch", "numpy", "sklearn")
_NOT_IN_THE_API = ("celery", "redis", "alembic", "obstore")
# One file for each contract that breaks it, and what pyproject calls the contract.
_OFFENCES = {
    "Inside app, imports go down the layers": ("app/utils.py", ""),
    "The api and the pages know neither": ("app/api/x.py", "import app.simulation"),
    "The command line talks to the api over HTTP": ("app/cli/x.py", "import app.api"),
    "The simulator does not know the command line": ("app/simulation/x.py", "import app.cli"),
    "No cycles between siblings": ("app/domain/units/errors.py", "import app.domain.spec.job_spec"),
    "The trainer installs and imports without": ("trainer/agent/x.py", "import app.domain"),
    "Inside trainer, agent, training and callbacks": (
        "trainer/training/x.py",
        "import trainer.agent",
    ),
    "The control plane knows only the trainer's": ("app/ports/x.py", "import trainer.agent"),
    "Nothing imports the workers": ("app/domain/x.py", "import workers"),
    "The domain is pure": ("app/domain/y.py", "import sqlalchemy"),
    "SQL stays in app.storage": ("app/orchestration/y.py", "import psycopg"),
    "Providers do not know each other": (
        "app/adapters/providers/aws/__init__.py",
        "import app.adapters.providers.local",
    ),
    "PyTorch stays in trainer.training": ("workers/x.py", "import torch"),
    "Cloud SDKs stay in their provider's folder": ("workers/y.py", "import boto3"),
}


def _verdicts(project: Path) -> dict[str, str]:
    """What import-linter says of each contract: KEPT or BROKEN."""
    done = run_command(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], timeout=300, cwd=project
    )
    return dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))


@pytest.fixture(scope="module")
def broken_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's source with every offence in it."""
    copy = tmp_path_factory.mktemp("project")
    for room in ("app", "workers", "trainer", "migrations"):
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("*.npz", "__pyc*"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, line in _OFFENCES.values():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else ""
        path.write_text(f"{before}\n{line}\n")
    return copy


def test_every_contract_bites(broken_copy: Path):
    verdicts = _verdicts(broken_copy)
    for begins in _OFFENCES:
        [verdict] = [said for name, said in verdicts.items() if name.startswith(begins)]
        assert verdict == "BROKEN", begins
    assert len(verdicts) == len(_OFFENCES), "give each contract an offence here"


def test_the_protocol_needs_only_the_standard_library():
    allowed = {*sys.stdlib_module_names, "trainer"}
    for file in source_files():
        if file.name.startswith("trainer/protocol/"):
            modules = imported_modules(file)
            assert {module.partition(".")[0] for module in modules} <= allowed, file.name
            assert all(m.startswith("trainer.protocol") for m in modules if m[:7] == "trainer")


@pytest.mark.parametrize(
    ("program", "not_needed"),
    [("app.api.main", _SDKS + _NOT_IN_THE_API), ("workers.entrypoints, workers.tasks", _SDKS)],
)
def test_api_and_worker_start_without_cloud_sdk_pytorch_and_numpy(
    program: str, not_needed: tuple[str, ...], tmp_path: Path
):
    """A worker loads numpy at the first choice for a job with a deadline, an SDK for its cloud."""
    code = f"import {program}, sys; print(*sorted(sys.modules))"
    done = run_command(
        [sys.executable, "-c", code],
        timeout=300,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "LOWTIDE_STATE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, f"{program} cannot be imported:\n{done.stderr}"
    assert done.stderr == ""
    assert [name for name in not_needed if name in done.stdout.split()] == []

"""What `submit` makes of a file and its options, before anything is sent."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.client.failures import CommandFailed
from app.cli.jobs.spec_edits import SpecDraft, SpecEdits, read_draft

DIGEST = "sha256:" + "a" * 64
TRAINER = "trainer: {model: mlp, data: digits, epochs: 2}\n"
RUN = "run: python train.py\nworkdir: {}\n"


@pytest.fixture
def draft(tmp_path: Path) -> Callable[..., SpecDraft]:
    """The draft of a spec's text under some edits."""

    def made(text: str = TRAINER, edits: SpecEdits | None = None) -> SpecDraft:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return read_draft(str(path), edits or SpecEdits())

    return made


def test_a_file_is_read_as_it_stands(draft: Callable[..., SpecDraft]):
    spec = draft().spec()
    assert spec.trainer is not None
    assert (spec.trainer.model, spec.trainer.epochs) == ("mlp", 2)
    assert draft().folder is None


def test_json_is_known_by_the_name_of_the_file(tmp_path: Path):
    path = tmp_path / "job.json"
    path.write_text('{"trainer": {"model": "mlp", "data": "digits", "epochs": 2}}')
    assert read_draft(str(path), SpecEdits()).spec().trainer is not None
    path.write_text(TRAINER)
    with pytest.raises(CommandFailed) as refused:
        read_draft(str(path), SpecEdits())
    assert "not valid JSON" in "\n".join(refused.value.lines())


@pytest.mark.parametrize(
    "text", [TRAINER, '{"trainer":{"model":"mlp","data":"digits","epochs":2}}']
)
def test_stdin_may_be_either(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert read_draft("-", SpecEdits()).spec().trainer is not None


def test_every_option_goes_where_it_belongs(draft: Callable[..., SpecDraft]):
    edits = SpecEdits(
        name="run-7",
        settings=["trainer.epochs=30", "trainer.lr=0.1", "labels={team: nlp}"],
        env=["A=1", "B.C=x=y"],
        gpu="V100:1, A10G:1",
        nodes="2",
        infra="local/us-west-2,local",
        market="on_demand",
        deadline="36h",
        budget="$200",
    )
    with pytest.raises(CommandFailed) as refused:
        draft(TRAINER, edits)
    # B.C is no name of a variable: it went in as one, and not as a section C of B.
    assert "B.C" in "\n".join(refused.value.lines())


def test_the_options_say_more_than_the_file(draft: Callable[..., SpecDraft]):
    text = f"{TRAINER}name: old\nnodes: 1\nbudget_usd: 1\nenv: {{KEEP: yes}}\nmarket: spot\n"
    text = text.replace("{KEEP: yes}", "{KEEP: 'yes'}")
    spec = draft(
        text,
        SpecEdits(
            name="run-7",
            settings=["trainer.epochs=30", "name=other"],
            env=["A=x=y"],
            gpu="V100:1, A10G:1",
            nodes="2",
            infra="local/us-west-2",
            market="on_demand",
            deadline="36h",
            budget="$200",
        ),
    ).spec()
    assert spec.name == "run-7"
    assert spec.trainer is not None
    assert spec.trainer.epochs == 30
    assert spec.env == {"KEEP": "yes", "A": "x=y"}
    assert {str(choice) for choice in spec.gpu_choices} == {"V100:1", "A10G:1"}
    assert (spec.node_count, spec.market, spec.budget_microusd) == (2, "on_demand", 200_000_000)
    assert spec.to_json()["deadline"] == "36h"
    assert len(spec.infra or ()) == 1


@pytest.mark.parametrize(
    ("edits", "sentence"),
    [
        (SpecEdits(settings=["epochs"]), "write it as --set"),
        (SpecEdits(settings=["=3"]), "write it as --set"),
        (SpecEdits(settings=["trainer.=3"]), "name a field like"),
        (SpecEdits(settings=["a.b.c.d.e.f=3"]), "name a field like"),
        (SpecEdits(settings=["trainer.model.x=3"]), "model has no fields in the spec"),
        (SpecEdits(settings=["trainer.epochs=[1"]), "--set trainer.epochs"),
        (SpecEdits(settings=["trainer.epochz=3"]), "did you mean 'epochs'"),
        (SpecEdits(env=["NAME"]), "write it as --env"),
        (SpecEdits(nodes="two"), "nodes"),
        (SpecEdits(gpu="V100:x"), "resources.gpu"),
        (SpecEdits(deadline="tomorrow"), "deadline"),
        (SpecEdits(budget="lots"), "budget_usd"),
        (SpecEdits(name="Not A Name"), "name"),
    ],
)
def test_a_wrong_option_is_told_at_once(
    draft: Callable[..., SpecDraft], edits: SpecEdits, sentence: str
):
    with pytest.raises(CommandFailed) as refused:
        draft(TRAINER, edits)
    assert sentence in "\n".join(refused.value.lines())
    assert refused.value.exit_code == 2


def test_a_folder_is_meant_from_where_the_file_lies(
    draft: Callable[..., SpecDraft], tmp_path: Path
):
    made = draft(RUN.format("src"))
    assert made.folder == tmp_path / "src"
    assert made.spec(DIGEST).workdir == DIGEST


def test_a_folder_that_is_packed_already_is_left_alone(draft: Callable[..., SpecDraft]):
    made = draft(RUN.format(DIGEST))
    assert made.folder is None
    assert made.spec().workdir == DIGEST


def test_every_problem_of_a_spec_is_listed(draft: Callable[..., SpecDraft]):
    with pytest.raises(CommandFailed) as refused:
        draft("trainer: {model: mlp, data: digits, epochs: 0}\nbudgt_usd: 3\nnodes: 0\n")
    lines = refused.value.lines()
    assert lines[0].endswith("cannot be submitted:")
    assert len(lines) == 4
    assert any("did you mean 'budget_usd'" in line for line in lines)


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "a: &x 1\nb: *x", "trainer: {", "\x00", "run: " + "x" * 300_000]
)
def test_text_that_is_no_spec_is_told_and_never_a_traceback(
    draft: Callable[..., SpecDraft], text: str
):
    with pytest.raises(CommandFailed) as refused:
        draft(text)
    assert refused.value.problems


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(CommandFailed, match="No such file"):
        read_draft(str(tmp_path / "absent.yaml"), SpecEdits())
    with pytest.raises(CommandFailed, match="directory"):
        read_draft(str(tmp_path), SpecEdits())


def test_what_is_no_job_spec_is_told_with_the_way_to_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("for epoch in range(60): print(epoch)\n")
    for source, told in (
        (script, f"is a script, not a job spec; `lowtide init {tmp_path}` writes one for it"),
        (tmp_path, f"Is a directory; name the file of a job spec in it, as {tmp_path}/job.yaml"),
        (tmp_path / "gone.yaml", "No such file or directory; name the file of a job spec, or -"),
    ):
        with pytest.raises(CommandFailed, match=re.escape(told)):
            read_draft(str(source), SpecEdits())

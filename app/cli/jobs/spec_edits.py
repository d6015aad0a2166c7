"""A job spec as the command line reads it: a file, stdin or another job's, changed by options.

Lives here: which file, which bytes, and what `--set`, `--env` and the short options put where. Not
here: the rules of the fields (`app.domain.spec.job_spec`), or the packing of the working folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.cli.client.failures import CommandFailed
from app.domain.units.errors import SpecError

if TYPE_CHECKING:
    from app.domain.spec.job_spec import JobSpec

_SET_DEPTH_MAX: Final = 5
_STAND_IN_DIGEST: Final = "sha256:" + "0" * 64


@dataclass(frozen=True, slots=True)
class SpecEdits:
    """What the options of `submit` change; None or empty leaves the spec as it is written."""

    name: str | None = None
    settings: Sequence[str] = ()
    env: Sequence[str] = ()
    gpu: str | None = None
    nodes: str | None = None
    infra: str | None = None
    market: str | None = None
    deadline: str | None = None
    budget: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """A valid spec before its working folder is packed. `folder`: what to pack, None for nothing.

    `what` names the source in messages.
    """

    what: str
    data: dict[str, Any] = field(repr=False)
    folder: Path | None

    def spec(self, workdir_digest: str | None = None) -> JobSpec:
        """The spec with the packed folder in place; raises CommandFailed listing every problem."""
        from app.domain.spec.job_spec import parse_spec

        data = self.data
        if self.folder is not None:
            data = {**data, "workdir": workdir_digest or _STAND_IN_DIGEST}
        try:
            return parse_spec(data)
        except SpecError as error:
            raise CommandFailed.from_domain(error, self.what) from error


def read_draft(source: str, edits: SpecEdits) -> SpecDraft:
    """The spec in a file, or in stdin for "-", with the edits made and checked.

    Raises CommandFailed when it cannot be read or is not valid.
    """
    from app.domain.spec.spec_text import parse_spec_text

    what = "the spec on stdin" if source == "-" else source
    text, text_type, base = _read(source)
    try:
        data = parse_spec_text(text, text_type)
    except SpecError as error:
        raise CommandFailed.from_domain(error, what, text) from error
    _apply(data, edits)
    draft = SpecDraft(what, data, _folder_to_pack(data.get("workdir"), base))
    draft.spec()
    return draft


def copied_draft(job: str, data: dict[str, Any], edits: SpecEdits) -> SpecDraft:
    """The spec of a job that was submitted before, with the edits made and checked.

    Its working folder is the one that was uploaded then, unless the edits name another. Raises
    CommandFailed when it is not valid.
    """
    _apply(data, edits)
    folder = _folder_to_pack(data.get("workdir"), Path.cwd())
    draft = SpecDraft(f"the spec of {job}", data, folder)
    draft.spec()
    return draft


def _read(source: str) -> tuple[bytes, Any, Path]:
    """(bytes, their type, the folder that a relative workdir is meant from)."""
    from app.domain.spec.spec_text import MAX_SPEC_BYTES

    # One byte more than may be, so that a longer spec is seen and refused as such.
    if source == "-":
        text = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
        return text, "json" if text.lstrip()[:1] == b"{" else "yaml", Path.cwd()
    path = Path(source)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        hint = "name the file of a job spec, or - for stdin"
        if path.is_dir():
            hint = f"name the file of a job spec in it, as {path / 'job.yaml'}"
        raise CommandFailed(f"{source} cannot be read: {error.strerror}; {hint}") from error
    if path.suffix == ".py":
        written = f"`lowtide init {path.parent}` writes one for it"
        raise CommandFailed(f"{source} is a script, not a job spec; {written}")
    return text, "json" if path.suffix.lower() == ".json" else "yaml", path.resolve().parent


def _folder_to_pack(written: object, base: Path) -> Path | None:
    if not isinstance(written, str) or written.startswith("sha256:") or not written.strip():
        return None
    return base / Path(written).expanduser()


def _apply(data: dict[str, Any], edits: SpecEdits) -> None:
    """Options go over the file, and the options with a name of their own go over --set."""
    for setting in edits.settings:
        key, value = _pair(setting, "--set", "trainer.epochs=30")
        _put(data, key, _value(key, value))
    for variable in edits.env:
        name, value = _pair(variable, "--env", "NAME=value")
        _put(data, f"env\0{name}", value)
    if edits.gpu is not None:
        choices = [choice.strip() for choice in edits.gpu.split(",")]
        _put(data, "resources.gpu", choices)
    if edits.infra is not None:
        data["infra"] = [place.strip() for place in edits.infra.split(",")]
    if edits.nodes is not None:
        data["nodes"] = int(edits.nodes) if edits.nodes.isdecimal() else edits.nodes
    given = {
        "name": edits.name,
        "market": edits.market,
        "deadline": edits.deadline,
        "budget_usd": edits.budget,
        "project": edits.project,
    }
    data.update({key: value for key, value in given.items() if value is not None})


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise CommandFailed(f"{option} {text[:60]!r}: write it as {option} {example}")
    return key.strip(), value


def _value(key: str, text: str) -> object:
    """The value as YAML would read it: a number, a list, text."""
    from app.domain.spec.spec_text import MAX_DEPTH, MAX_VALUES
    from app.domain.spec.spec_yaml import read_yaml

    if not text.strip():
        return ""
    try:
        return read_yaml(text, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    except SpecError as error:
        raise CommandFailed(f"--set {key}: {error.message}") from error


def _put(data: dict[str, Any], key: str, value: object) -> None:
    """Put a value under a dotted key; NUL separates where a name may itself hold a dot."""
    *sections, last = key.split("\0" if "\0" in key else ".")
    if len(sections) >= _SET_DEPTH_MAX or not all([*sections, last]):
        raise CommandFailed(f"--set {key!r}: name a field like trainer.epochs")
    inside = data
    for section in sections:
        below = inside.setdefault(section, {})
        if not isinstance(below, dict):
            raise CommandFailed(
                f"{section} has no fields in the spec, so {last!r} cannot be set in it"
            )
        inside = below
    inside[last] = value

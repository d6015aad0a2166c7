"""From the validation library's errors to the sentences a person gets about their job spec.

The rules themselves are in the models; here is only what is said, where, and in which order.
"""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.domain.spec.spec_value import REFUSAL, SpecModel, kind_of, nearest
from app.domain.units.errors import ProblemKind, SpecError, SpecProblem

MAX_PROBLEMS = 20

# Dotted path of each section ("" for the spec itself) → its model.
Sections = Mapping[str, type[SpecModel]]

_SENTENCES = {
    "missing": "is required",
    "int_type": "must be a whole number, not {got}",
    "int_from_float": "must be a whole number, not {got}",
    "float_type": "must be a number, not {got}",
    "finite_number": "must be a finite number",
    "string_unicode": "holds a name that is not valid Unicode; remove it",
    "string_type": "must be text, not {got}",
    "list_type": "must be a list, not {got}",
    "dict_type": "must be a mapping, not {got}",
    "model_type": "must be a mapping, not {got}",
    "invalid_key": "names must be text",
    "greater_than_equal": "must be at least {ge}, not {got}",
    "greater_than": "must be more than {gt}, not {got}",
    "less_than_equal": "must be at most {le}, not {got}",
    "less_than": "must be less than {lt}, not {got}",
    "too_long": "must have at most {max_length} entries",
}
_EXAMPLES = {
    "resources": "{gpu: V100}",
    "estimate": "{hours: 10, gpu: V100}",
    "checkpoint": "{interval: 10m}",
}
"""What stands in a section that was given as something else, for those that people shorten."""

_OTHER_WORDS = {"command": "run", "cmd": "run", "entrypoint": "run", "script": "run"}
"""What other tools call a field."""

_BOUNDS = frozenset({"greater_than_equal", "greater_than", "less_than_equal", "less_than"})

_SKYPILOT_FIELDS = {
    "num_nodes": "`nodes`",
    "envs": "`env`",
    "file_mounts": "`inputs` for data and `outputs` for results; checkpoints need none",
    "accelerators": "`resources.gpu`",
    "use_spot": "`market`",
    "resources.accelerators": "`resources.gpu`",
    "resources.instance_type": "`instance_types`, a list at the top level",
    "resources.cloud": "`infra`, at the top level",
    "resources.region": "`infra`, at the top level, as in `aws/us-east-1`",
    "resources.zone": "`infra`, at the top level, as in `aws/us-east-1/us-east-1a`",
    "resources.use_spot": "`market`, at the top level",
    "resources.any_of": "a list in `infra`, `instance_types` or `resources.gpu`",
    "resources.ordered": "a list in `infra`, `instance_types` or `resources.gpu`",
    "resources.disk_size": "`resources.disk`, with a unit, as in `500GB`",
    "resources.network_tier": "`resources.interconnect`",
    "resources.image_id": "`image`, at the top level, without `docker:`",
    "resources.job_recovery": "`retries` and `retry_on_exit_codes`, at the top level",
}
"""SkyPilot's names for what has another name here, by their path."""


def spec_error(error: ValidationError, sections: Sections) -> SpecError:
    """Every problem found, in the order of the fields; at most MAX_PROBLEMS, then how many more."""
    details = error.errors(include_url=False)
    problems = [_problem(detail, sections) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        more = len(details) - MAX_PROBLEMS
        problems.append(SpecProblem("", f"and {more} more problems; correct these first"))
    return SpecError(problems)


def _problem(detail: ErrorDetails, sections: Sections) -> SpecProblem:
    context = detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        return _unknown_field(detail["loc"], sections)
    if detail["type"] == REFUSAL:
        field = _path([*detail["loc"], *filter(None, [context["field"]])])
        return SpecProblem(field, _said(field, context["sentence"]), ProblemKind(context["kind"]))
    field = _path(detail["loc"])
    got = _shown(detail["type"], detail["input"])
    numbers = {name: _number(value) for name, value in context.items()}
    template = _SENTENCES.get(detail["type"])
    sentence = template.format(got=got, **numbers) if template else _plain(detail["msg"])
    if detail["type"] == "model_type" and field in _EXAMPLES:
        sentence += f"; write {_EXAMPLES[field]}"
    kind = ProblemKind.MISSING if detail["type"] == "missing" else ProblemKind.INVALID
    return SpecProblem(field, _said(field, sentence), kind)


def _shown(problem: str, value: object) -> str:
    """Beside a bound the number itself; elsewhere what kind of value it is."""
    kind = kind_of(value)
    return kind.removeprefix("the number ") if problem in _BOUNDS else kind


def _unknown_field(loc: Sequence[int | str], sections: Sections) -> SpecProblem:
    *parents, last = loc
    section, word = _path(parents), str(last)
    where = f" in {section}" if section else ""
    ours = _SKYPILOT_FIELDS.get(f"{section}.{word}".lstrip("."))
    hint = _nearest_field(word, section, sections)
    if not section and word in _OTHER_WORDS:
        hint = f"; did you mean {_OTHER_WORDS[word]!r}?"
    if ours is not None:
        hint = f"; in Lowtide it is {ours} (see docs/from-skypilot.md)"
    message = f"unknown field {word[:40]!r}{where}{hint}"
    return SpecProblem(_path(loc), message, ProblemKind.UNKNOWN_FIELD)


def _nearest_field(word: str, section: str, sections: Sections) -> str:
    """The nearest field of the same section; else where that very word does belong."""
    elsewhere = [
        f"{path}.{word}".lstrip(".")
        for path, model in sections.items()
        if path != section and word in _fields(model)
    ]
    if elsewhere:
        # At the top level the path is the very word that was refused: say where it stands.
        if elsewhere[0] == word:
            return f"; {word!r} stands at the top level of the spec"
        return f"; did you mean {elsewhere[0]!r}?"
    model = sections.get(section)
    return nearest(word, _fields(model)) if model else ""


def _fields(model: type[SpecModel]) -> Iterator[str]:
    return (info.alias or name for name, info in model.model_fields.items())


def _path(loc: Sequence[int | str]) -> str:
    # "[key]" is the library's mark for "the name itself is wrong"; the name stands before it.
    return ".".join(str(part)[:128] for part in loc if part != "[key]")


def _said(field: str, sentence: str) -> str:
    return f"{field}: {sentence}" if field else sentence


def _number(value: object) -> object:
    return f"{value:,}" if isinstance(value, int | float) else value


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:]

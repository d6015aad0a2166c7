"""The fields of a spec's `trainer` section, made from the trainer's own table of options.

The table is trainer.protocol.train_options; here is only how one of its rows becomes a field of the
spec: same name, same bounds, refused in the spec's words. Rules between the fields live in
job_spec_fields.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, create_model

from app.domain.spec.spec_value import SpecModel, Written, one_of, refusal, unknown_word
from trainer.protocol.train_options.check import checked
from trainer.protocol.train_options.option import REQUIRED, Option, OptionError, OptionKind
from trainer.protocol.train_options.train_config import OPTIONS

_JSON_TYPES: Final[dict[OptionKind, dict[str, object]]] = {
    "whole number": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "text": {"type": "string"},
    "list": {"type": "array"},
    "mapping": {"type": "object"},
    "plain": {"type": ["number", "string", "boolean"]},
}
_BARE: Final[dict[OptionKind, type]] = {"whole number": int, "number": float, "flag": bool}


def _field(option: Option) -> Any:  # noqa: ANN401 (for create_model)
    """The annotation and the default of one option's field; unset means the trainer's default."""
    kind = _annotation(option)
    about = option.rules.about
    if option.default is REQUIRED:
        return kind, Field(description=about)
    return kind | None, Field(default=None, description=about)


def _annotation(option: Option) -> Any:  # noqa: ANN401 (a type, made at run time)
    shape, rules = option.shape, option.rules
    if shape.kind in _BARE and not shape.words:
        return Annotated[_BARE[shape.kind], Field(ge=rules.low, le=rules.high)]
    if shape.kind == "text" and rules.choices and not rules.pattern:
        return Annotated[str, one_of(option.name, rules.choices)]
    return Annotated[Any, _written(option)]


def _written(option: Option) -> Written:
    """An option of a form that the spec has no words of its own for."""
    choices = option.rules.choices

    def read(value: object) -> object:
        try:
            return checked(option, value)
        except OptionError as error:
            if choices:
                raise unknown_word(option.name, value, (*choices, option.rules.how)) from error
            raise refusal(error.sentence) from error

    schema = dict(_JSON_TYPES[option.shape.kind])
    return Written(read, {**schema, "examples": list(choices)} if choices else schema)


if TYPE_CHECKING:

    class TrainerFields(SpecModel):
        """To the type checker: the options that the control plane itself reads."""

        model: str
        data: str
        epochs: int | None
        steps: int | None
        batch_size: int | None
        accumulation: int | None
        checkpoint_interval_steps: int | None

else:
    TrainerFields = create_model(
        "TrainerFields",
        __base__=SpecModel,
        **{option.name: _field(option) for option in OPTIONS if option.rules.in_spec},
    )

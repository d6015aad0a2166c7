"""How one value of a job spec is read, refused, stored and described: the parts kinds are made of.

The kinds themselves (a name, a deadline, a GPU) live in job_spec_values, the fields in
job_spec_fields and job_spec.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from app.domain.spec.spec_text import has_bad_character
from app.domain.units.durations import duration_text, parse_duration
from app.domain.units.errors import InvalidValue, ProblemKind

# The pydantic error type of every refusal made here; job_spec_problems reads its context.
REFUSAL = "job_spec_refusal"
_NEAREST_CUTOFF = 0.5


class SpecModel(BaseModel):
    """A section of the spec: frozen, no coercion between types, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refusal(
    sentence: str, field: str = "", kind: ProblemKind = ProblemKind.INVALID
) -> PydanticCustomError:
    """The error to raise from a validator. `field` is relative to where the validator stands."""
    context = {"sentence": sentence, "field": field, "kind": kind.value}
    return PydanticCustomError(REFUSAL, "{sentence}", context)


def not_available(hint: str = "", field: str = "") -> PydanticCustomError:
    """The refusal of something well-formed that this version cannot do."""
    sentence = "not available yet" + (f" ({hint})" if hint else "")
    return refusal(sentence, field, ProblemKind.NOT_AVAILABLE)


def later(instead: str) -> AfterValidator:
    """Put last on a field whose shape is judged but which this version cannot do.

    instead: what to do meanwhile. An empty value asks for nothing: it passes, and becomes None so
    that it leaves no trace in the stored form.
    """

    def refuse_unless_empty(value: object) -> None:
        if value:
            raise refusal(f"not available yet; {instead}", "", ProblemKind.NOT_AVAILABLE)

    return AfterValidator(refuse_unless_empty)


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity, as annotations must be
class Written:
    """Annotation for a value with a written form.

    `read` gets whatever was written and returns the value or raises InvalidValue or `refusal`;
    `store` makes the JSON form, which `read` must read back to an equal value (None: the value
    itself is JSON); `schema` is the JSON Schema of the written form.
    """

    read: Callable[[object], object]
    schema: Mapping[str, object]
    store: Callable[[Any], object] | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        store = self.store
        return core_schema.no_info_plain_validator_function(
            self._read_or_refuse,
            serialization=store and core_schema.plain_serializer_function_ser_schema(store),
        )

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, object]:
        return dict(self.schema)

    def _read_or_refuse(self, value: object) -> object:
        try:
            return self.read(value)
        except InvalidValue as error:
            shown = ""
            # A message that begins with the value's own words names it already.
            if isinstance(value, str) and error.message[:1] not in "'\"":
                shown = f"{value[:60]!r} "
            raise refusal(f"{shown}{error.message}") from error


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or "" when none is near."""
    near = difflib.get_close_matches(word[:64].lower(), list(known), n=1, cutoff=_NEAREST_CUTOFF)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_of(noun: str, known: tuple[str, ...]) -> Written:
    """Text that must be one of `known`; the refusal lists them and names the nearest."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise unknown_word(noun, value, known)

    return Written(read, {"type": "string", "enum": list(known)})


def unknown_word(noun: str, value: object, known: tuple[str, ...]) -> PydanticCustomError:
    """The refusal of a word that is not in the closed list `known`."""
    shown = repr(value[:40]) if isinstance(value, str) else kind_of(value)
    hint = nearest(value, known) if isinstance(value, str) else ""
    return refusal(f"unknown {noun} {shown}; known: {', '.join(known)}{hint}")


def text(max_length: int, *, lines: bool = False) -> Written:
    """Non-empty text without control characters, on one line unless `lines`."""

    def read(value: object) -> str:
        return checked_text(value, max_length, lines=lines)

    return Written(read, {"type": "string", "minLength": 1, "maxLength": max_length})


def matching(pattern: str, how: str) -> Written:
    """Text that matches the whole of `pattern`; `how` says what to write instead."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        checked = checked_text(value, 1_024)
        if compiled.fullmatch(checked) is None:
            raise refusal(f"{checked[:60]!r} is not accepted; {how}")
        return checked

    return Written(read, {"type": "string", "pattern": f"^(?:{pattern})$"})


def duration(at_least_seconds: int) -> Written:
    """An int of seconds, written and stored as "36h" or "1h30m"."""

    def read(value: object) -> int:
        return parse_duration(value, at_least_seconds=at_least_seconds)

    schema = {"type": "string", "examples": ["90s", "15m", "36h", "1h30m"]}
    return Written(read, schema, duration_text)


def checked_text(value: object, max_length: int, *, lines: bool = False) -> str:
    """`value` if it is usable text of at most `max_length` characters; raises a refusal."""
    if not isinstance(value, str):
        raise refusal(f"must be text, not {kind_of(value)}; quote it if it is meant as text")
    if not value.strip():
        raise refusal("must not be empty; leave the field out instead")
    if len(value) > max_length:
        raise refusal(f"must be at most {max_length:,} characters, not {len(value):,}")
    on_one_line = lines or not ("\n" in value or "\r" in value or "\t" in value)
    if has_bad_character(value) or not on_one_line:
        raise refusal("must not hold control characters" + ("" if lines else " or line breaks"))
    return value


def kind_of(value: object) -> str:
    """What a value of JSON is called in a message: "the number 3", "a list"."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) < 10**18:
        return f"the number {value}"
    if isinstance(value, float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    names = {int: "a number of more than 18 digits", list: "a list", dict: "a mapping"}
    return names.get(type(value), "that")

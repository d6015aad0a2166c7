"""The errors the domain raises on purpose, each with a sentence a person can act on.

Here live the classes only. What HTTP status they become is decided in the API's error responses,
and programming errors (a broken invariant) are plain Python exceptions, not these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class DomainError(Exception):
    """Something a caller asked for cannot be done; `message` says what, where and what to do.

    `field` is the dotted path of the input at fault ("trainer.epochs"), None when no single one is.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidValue(DomainError):
    """One value that a person wrote cannot be read, or is outside its bounds."""


class CommandRefused(DomainError):
    """A command that is understood but illegal in the present state (HTTP 409)."""


class NotFound(DomainError):
    """The named thing does not exist, or the caller may not know that it does."""


class Hidden(NotFound):
    """It exists, and the caller may not know that it does: told as what does not exist."""


class Forbidden(DomainError):
    """The caller's role does not reach what it asked for (HTTP 403)."""


class TooManyAttempts(DomainError):
    """Too many failed attempts to sign in, by address or by account (HTTP 429).

    wait_seconds: until the next one is read.
    """

    def __init__(self, message: str, wait_seconds: int) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class ProblemKind(StrEnum):
    """Why a field of a job spec was refused."""

    INVALID = "invalid"
    MISSING = "missing"
    UNKNOWN_FIELD = "unknown_field"
    NOT_AVAILABLE = "not_available"
    IMPOSSIBLE = "impossible"
    RISKY = "risky"
    NOT_ALLOWED = "not_allowed"
    """A rule of the project forbids it."""


class Advice(StrEnum):
    """What may be done about a problem beside changing the field.

    The API names its parameter, the command line its option, a page its box.
    """

    ACCEPT_RISK = "accept_risk"


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """One thing wrong with a job spec. `field` is a dotted path, "" for the spec as a whole.

    `line`: of the text, counted from 1, where the text itself cannot be read; else None.
    `advice`: what may be done beside changing the field; the message does not say it.
    """

    field: str
    message: str
    kind: ProblemKind = ProblemKind.INVALID
    line: int | None = None
    advice: Advice | None = None

    def to_json(self) -> dict[str, str]:
        """{"field", "message", "kind"} as the API's problem+json lists it; `advice` if there is."""
        told = {"field": self.field, "message": self.message, "kind": self.kind.value}
        return told if self.advice is None else {**told, "advice": self.advice.value}


class SpecError(DomainError):
    """A job spec was refused. `problems` holds at least one entry; all known ones are listed."""

    def __init__(self, problems: Sequence[SpecProblem]) -> None:
        if not problems:
            raise ValueError("a SpecError needs at least one problem")
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__("; ".join(p.message for p in self.problems), first.field or None)

    @classmethod
    def of(
        cls,
        message: str,
        field: str = "",
        kind: ProblemKind = ProblemKind.INVALID,
        *,
        line: int | None = None,
        advice: Advice | None = None,
    ) -> "SpecError":
        """A refusal for one single reason."""
        return cls([SpecProblem(field, message, kind, line, advice)])

"""How a command ends when it could not do what was asked: the exit codes and the sentence.

Not here: where the sentence is printed (`invocation`) or how an answer of the api becomes one
(`api_client`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from app.domain.units.durations import measured_duration
from app.domain.units.errors import Advice, DomainError, SpecError

if TYPE_CHECKING:
    import httpx

JOB_FAILED: Final = 1
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3
ADVICE: Final[dict[str, str]] = {
    Advice.ACCEPT_RISK: "change it, or submit with --accept-risk",
}
"""What a problem's advice is called on the command line."""
INTERRUPTED: Final = 130
"""What shells report for a program that Ctrl-C ended."""


class CommandFailed(Exception):
    """Ends the command. `message` says what, where and what to do; `details` are lines below it,
    `problems` one line per field.

    `status` is the HTTP status that caused it, None when no answer did. `field` is the one field
    that the api refused, "" for none or several.
    """

    def __init__(
        self,
        message: str,
        exit_code: int = BAD_INPUT,
        *,
        details: Sequence[str] = (),
        problems: Sequence[dict[str, str]] = (),
        status: int | None = None,
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.details = tuple(details)
        self.problems = tuple(problems)
        self.status = status
        self.field = field

    @classmethod
    def from_domain(cls, error: DomainError, what: str, text: bytes = b"") -> Self:
        """The failure for a value that the domain refused; `what` names where it stands.

        text: of the spec, whose line at fault is shown where the text cannot be read.
        """
        if isinstance(error, SpecError):
            written = text.decode("utf-8", "replace").splitlines()
            at_fault = [one.line for one in error.problems if one.line is not None]
            return cls(
                f"{what} cannot be submitted:",
                details=[
                    f"{line} | {written[line - 1]}" for line in at_fault[:1] if line <= len(written)
                ],
                problems=[problem.to_json() for problem in error.problems],
            )
        return cls(f"{what}: {error.message}")

    def lines(self) -> list[str]:
        """What is printed, first the sentence, then one line per problem and detail."""
        below = [*(problem["message"] for problem in self.problems), *self.details]
        return [self.message, *(f"  {line}" for line in below)]

    def to_json(self) -> dict[str, object]:
        """{"error", "exit_code", "status", "details", "problems"}, less what does not apply."""
        told: dict[str, object] = {"error": self.message, "exit_code": self.exit_code}
        if self.status is not None:
            told["status"] = self.status
        if self.details:
            told["details"] = list(self.details)
        if self.problems:
            told["problems"] = list(self.problems)
        return told


class Effect(Enum):
    """What a request may have done when its answer did not come: the value says it to people."""

    NONE = "Nothing was changed; try again in a minute."
    ONCE = (
        "The request may still be carried out, but once at most: every try had the same "
        "Idempotency-Key. See with `lowtide jobs` whether the job is there before you submit it "
        "again."
    )
    UNKNOWN = (
        "The request may have been carried out, or may still be: look at what it should have "
        "changed, as with `lowtide jobs`, before you repeat it."
    )
    SAME_AGAIN = "Send it again: what has arrived already is recognized by its digest."

    @property
    def may_repeat(self) -> bool:
        """Whether a request that may have arrived can be sent again without asking anyone."""
        return self in (Effect.NONE, Effect.ONCE)


def unanswered(
    url: str, error: httpx.TransportError, limits: httpx.Timeout, tries: int, effect: Effect
) -> str:
    """The sentences about a connection that was made and brought no answer."""
    import httpx  # as late as in `api_client`: `--help` needs none

    often = f", asked {tries} times" if tries > 1 else ""
    if isinstance(error, httpx.ReadTimeout):
        what = f"did not answer within {_seconds(limits.read)}{often}"
    elif isinstance(error, httpx.WriteTimeout):
        what = f"took nothing of the request for {_seconds(limits.write)}{often}"
    else:
        what = f"closed the connection before it answered{often}"
    return (
        f"the api at {url} {what}. It listens, so it is busy, starved of processor time, or just "
        f"stopping: `lowtide status` on its machine tells. {effect.value}"
    )


def _seconds(limit: float | None) -> str:
    return measured_duration(limit or 0.0)

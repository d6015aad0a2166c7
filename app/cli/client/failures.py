"""How a command ends when it could not do what was asked: the exit codes and the sentence.

Not here: where the sentence is printed (`invocation`) or how an answer of the api becomes one
(`api_client`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from app.domain.units.errors import Advice, DomainError, SpecError

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

    `status` is the HTTP status that caused it, None when no answer did.
    """

    def __init__(
        self,
        message: str,
        exit_code: int = BAD_INPUT,
        *,
        details: Sequence[str] = (),
        problems: Sequence[dict[str, str]] = (),
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.details = tuple(details)
        self.problems = tuple(problems)
        self.status = status

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

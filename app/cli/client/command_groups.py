"""Groups of commands: one that knows other tools' words, one that runs a command unasked.

Not here: the commands themselves.
"""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

_OTHER_WORDS: Final = {
    "attach": "watch",
    "clone": "submit --from JOB",
    "copy": "submit --from JOB",
    "delete": "cancel",
    "end": "cancel",
    "info": "show",
    "kill": "cancel",
    "launch": "submit",
    "list": "jobs",
    "ls": "jobs",
    "prices": "offers",
    "queue": "jobs",
    "rerun": "submit --from JOB",
    "retry": "submit --from JOB` or `lowtide resume",
    "rm": "cancel",
    "run": "submit",
    "start": "up` or `lowtide resume",
    "stop": "cancel` or `lowtide pause",
    "suspend": "pause",
    "tail": "logs",
    "terminate": "cancel",
    "unpause": "resume",
}
"""What people of neighbouring tools type; nearly the same letters are found without a list."""


class ProgramGroup(TyperGroup):
    """All commands of the program; a word that another tool has leads to ours."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named. Fails with what is meant for another tool's word."""
        meant = None if args[0] in self.commands else _OTHER_WORDS.get(args[0])
        if meant is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean `lowtide {meant}`?")
        return super().resolve_command(ctx, args)


class DefaultCommandGroup(TyperGroup):
    """The first command added is run unless another one is named; `--help` lists them all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and not ctx.resilient_parsing:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

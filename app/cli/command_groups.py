"""A group of commands with one that runs when none is named: `lowtide cost` is `cost report`.

Not here: the commands themselves.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class DefaultCommandGroup(TyperGroup):
    """The first command added is run unless another one is named; `--help` lists them all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and not ctx.resilient_parsing:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

"""How commands stand in groups, and how their help reads.

Lives here: a group that knows other tools' words, one that runs a command unasked, and help that
names values by words (JOB, KEY=VALUE) in place of types. Not here: the commands themselves.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

_OTHER_WORDS: Final = {
    "apikey": "key",
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
    "plan": "submit FILE --dry-run",
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
    "validate": "submit FILE --dry-run",
}
"""What people of neighbouring tools type; nearly the same letters are found without a list."""

_RANGES: Final = (
    (re.compile(r"\b([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"\bx>=([\d.]+)"), r"at least \1"),
)
"""Typer writes limits as formulas; people read words."""


class CommandHelp(TyperCommand):
    """A command whose help writes an argument as its word alone, and limits of numbers in words.

    So does the refusal of a value.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's. Fails with what was given and what is accepted, not in pydantic's words."""
        written = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                given = error.__cause__.errors()[0]["input"]
                param: Any = error.param
                is_argument = param.param_type_name == "argument"
                name = _word(param) if is_argument else _name_written(param, written)
                ctx.fail(f"{name} {given!r}: write {_accepted(param.type_descriptor)}.")
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] JOB [DIR]`: brackets around what may be left out, dots after what repeats."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                word = _word(param) + ("..." if param.nargs != 1 else "")
                pieces.append(word if param.required else f"[{word}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then the options."""
        sections: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                kind = param.param_type_name
                name = _word(param) if kind == "argument" else record[0]
                sections[kind].append((name, _in_words(record[1])))
        for kind, rows in sections.items():
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)


class CommandList(typer.Typer):
    """Commands whose help is `CommandHelp`'s."""

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        """As typer's."""
        return super().command(name, cls=CommandHelp, **given)


def _word(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _name_written(option: Any, args: Sequence[str]) -> str:
    """The one of an option's names that a person wrote, else the first, as of a short one."""
    names = [arg.partition("=")[0] for arg in args]
    return str(next((name for name in names if name in option.opts), option.opts[0]))


def _accepted(values: Any) -> str:
    """What an option takes: "a whole number, at least 1", "one of viewer, admin"."""
    if values.choices is not None:
        return f"one of {', '.join(choice.value for choice in values.choices)}"
    number = {int: "a whole number", float: "a number"}.get(values.annotation)
    if number is None:
        return "another value"
    least, most = values.parameter_info.min, values.parameter_info.max
    if least is None:
        return number
    return f"{number}, at least {least:g}" if most is None else f"{number}, {least:g} to {most:g}"


def _in_words(text: str) -> str:
    for formula, words in _RANGES:
        text = formula.sub(words, text)
    return text


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
        """Put the default command's name in front where none stands.

        Fails with the command that may be meant for a word that the default command cannot take.
        """
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and not ctx.resilient_parsing:
            default = next(iter(self.commands))
            if args and not args[0].startswith("-") and not _takes_words(self.commands[default]):
                near = nearest_command(args[0], ctx.command_path, self.commands)
                known = f"The commands are {', '.join(self.commands)}."
                ctx.fail(f"No such command {args[0]!r}. {near or known}")
            args = [default, *args]
        return super().parse_args(ctx, args)


def nearest_command(word: str, group: str, commands: Iterable[str]) -> str:
    """ "Did you mean `lowtide cost verify`?" for a word near to a command of the group, or ""."""
    near = difflib.get_close_matches(word.lower(), list(commands), n=1)
    return f"Did you mean `{group} {near[0]}`?" if near else ""


def _takes_words(command: Any) -> bool:
    return any(param.param_type_name == "argument" for param in command.params)

"""`--help` of every command: values are named by words that a person knows, as in docs/cli.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from app.cli.main import app
from tests.support.cli.command_line import CommandLine
from tests.support.sources.source_tree import ROOT


def _commands(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """(full name, command, its context) of each, groups included."""
    yield context.command_path, command, context
    for name, child in getattr(command, "commands", {}).items():
        # Typer brings its own click, so the context's class is the one at hand.
        yield from _commands(child, type(context)(child, info_name=name, parent=context))


def _program(**context: Any) -> list[tuple[str, Any, Any]]:
    program: Any = typer.main.get_command(app)
    return list(_commands(program, program.context_class(program, info_name="lowtide", **context)))


def test_no_help_shows_a_type_or_a_formula_of_the_program():
    for name, command, context in _program():
        text = command.get_help(context)
        assert re.findall(r"<[^>\n]*>|[<>]=|\[\[|\{\w+\}", text) == [], name


def test_usage_names_arguments_by_their_words():
    usages = {
        name: re.sub(r"\s+", " ", command.get_usage(context))
        for name, command, context in _program()
    }
    assert usages["lowtide show"] == "Usage: lowtide show [OPTIONS] JOB"
    assert usages["lowtide cancel"] == "Usage: lowtide cancel [OPTIONS] [JOB...]"
    assert usages["lowtide download"] == "Usage: lowtide download [OPTIONS] JOB [DIR]"
    assert usages["lowtide submit"] == "Usage: lowtide submit [OPTIONS] [FILE]"


def test_the_help_of_costs_shows_what_can_be_written_without_a_command():
    [(command, context)] = [(one, at) for name, one, at in _program() if name == "lowtide cost"]
    text = command.get_help(context)
    assert all(word in text for word in ("JOB", "--by", "--since", "--csv", "lowtide cost bert-ft"))


def test_limits_of_numbers_are_words():
    [(command, context)] = [(one, at) for name, one, at in _program() if name == "lowtide offers"]
    assert "[default: 30; 1 to 90]" in command.get_help(context)


def test_the_page_of_commands_names_values_as_help_does():
    words = {
        name: {
            option: str(item.metavar)
            for item in command.params
            for option in item.opts
            if item.param_type_name == "option" and item.metavar is not None
        }
        for name, command, _ in _program()
    }
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    seen = 0
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        names = [f"lowtide {found}" for found in re.findall(r"`lowtide ((?:[a-z]+ ?)+)", heading)]
        known: dict[str, str] = {}
        for name in names:
            known |= words[name.strip()]
        for option, word in re.findall(r"(--[a-z-]+) ([^`\s]+)` \|", section):
            if option in known:
                assert word.replace("\\|", "|") == known[option], f"{heading}: {option}"
                seen += 1
    assert seen > 20


def test_every_command_tells_how_to_use_it(tmp_path: Path):
    cli = CommandLine(tmp_path, {})
    program: Any = typer.main.get_command(app)
    commands = program.commands
    assert {"submit", "jobs", "logs", "cost", "instances"} <= set(commands)
    for name in commands:
        assert "Usage: " in cli.ok(name, "--help").out
    assert "lowtide submit job.yaml" in cli.ok("submit", "-h").out


def test_quiet_logs_are_said_to_be_lines_and_not_names():
    says = {
        name: item.help
        for name, command, _ in _program()
        for item in command.params
        if "-q" in item.opts
    }
    assert says["lowtide logs"] == "Print only log lines, no remarks."
    assert says["lowtide jobs"] == "Print only names, ids or a single figure."


def test_lists_of_commands_have_a_whole_line_each_at_80_columns():
    lists = [
        (name, command, command.get_help(context).partition("Commands:")[2].splitlines())
        for name, command, context in _program(terminal_width=80)
        if hasattr(command, "commands")
    ]
    assert {"lowtide", "lowtide key", "lowtide member"} <= {name for name, _, _ in lists}
    for name, command, lines in lists:
        assert [line for line in lines if line.endswith(("...", "…"))] == [], name
        assert max(map(len, lines)) <= 80, name
        shown = [one for one in command.commands.values() if not one.hidden]
        assert len(lines) == len(shown) + 1, f"{name}: a line each"


def test_a_command_of_a_group_that_is_nearly_named_is_named(tmp_path: Path):
    cli = CommandLine(tmp_path, {"LOWTIDE_SERVER_URL": "http://127.0.0.1:9"})
    for group, word, meant in (
        ("key", "crate", "create"),
        ("key", "revok", "revoke"),
        ("project", "restor", "restore"),
        ("instances", "interupt", "interrupt"),
        ("catalog", "refesh", "refresh"),
    ):
        told = cli.fails(2, group, word).errors
        assert f"No such command '{word}'. Did you mean `lowtide {group} {meant}`?" in told
    told = cli.fails(2, "project", "x").errors
    assert (
        "No such command 'x'. The commands are list, create, archive, restore, show, apply." in told
    )

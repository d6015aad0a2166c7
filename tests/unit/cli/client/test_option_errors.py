"""Every option of every command with a value of no use: plain words, and none of a framework."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import app
from tests.support.cli.command_line import CommandLine, Ran

# Words of typer, click and pydantic that a person cannot do anything with.
FRAMEWORK = re.compile(
    r"Invalid value|Input should|unable to parse|valid (?:integer|number|boolean)|x[<>]=|[<>]=x"
    r"|value_error|_type\b|pydantic|click|Traceback|\bNone\b|NoneType|\bstr\b|\bint\b"
)
# With a value that they accept after all these would start or end something on this machine.
AT_WORK = {"up", "demo", "down", "status", "doctor", "migrate", "backtest", "init", "recover"}


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command that can be run, with its words."""
    children = getattr(command, "commands", None)
    if children is None:
        yield names, command
        return
    for name, child in children.items():
        yield from commands(child, *names, name)


COMMANDS = list(commands(typer.main.get_command(app)))
OPTIONS = [
    (words, command, param)
    for words, command in COMMANDS
    for param in command.params
    if param.param_type_name == "option" and not param.is_flag
]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Nothing listens at its address, so that only what is judged here is told."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, {"LOWTIDE_SERVER_URL": "http://127.0.0.1:9"})


def arguments(command: Any) -> list[str]:
    """A word for each argument that must be there."""
    return ["word" for one in command.params if one.param_type_name == "argument" and one.required]


def is_number(param: Any) -> bool:
    return param.type_descriptor.annotation in (int, float)


def is_choice(param: Any) -> bool:
    return param.type_descriptor.choices is not None


NUMBERS = [one for one in OPTIONS if is_number(one[2])]


def check(ran: Ran, what: str) -> None:
    told = ran.errors.partition("Error: ")[2] or ran.errors
    assert FRAMEWORK.findall(told) == [], f"{what}: {told}"
    assert len(told.splitlines()) <= 3, f"{what}: {told}"


def test_a_number_or_a_choice_that_is_none_is_told_with_what_is_accepted(cli: CommandLine):
    seen = 0
    for words, command, param in OPTIONS:
        if not (is_number(param) or is_choice(param)):
            continue
        for value in ("x", "", "1;2"):
            what = f"{' '.join(words)} {param.opts[0]}={value!r}"
            ran = cli.run(*words, *arguments(command), f"{param.opts[0]}={value}")
            check(ran, what)
            assert (ran.exit_code, ran.out) == (2, ""), what
            assert f"Error: {param.opts[0]} {value!r}: write " in ran.errors, what
            seen += 1
    assert seen > 50


def test_a_number_out_of_bounds_is_told_with_the_bounds(cli: CommandLine):
    for words, given, told in (
        (("logs", "tour", "--rank"), "-1", "a whole number, at least 0"),
        (("logs", "tour", "--node"), "-1", "a whole number, at least 0"),
        (("offers", "--days"), "91", "a whole number, 1 to 90"),
        (("up", "--port"), "65536", "a whole number, 0 to 65535"),
        (("instances", "interrupt", "tour/m2", "--notice"), "-0.5", "a time from 0s to 1h, "),
        (("key", "create", "ci", "--role"), "boss", "one of viewer, submitter, maintainer, "),
    ):
        told_there = cli.fails(2, *words, given).errors
        assert f"Error: {words[-1]} '{given}': write {told}" in told_there


@pytest.mark.parametrize(
    ("value", "options"),
    [
        pytest.param("", OPTIONS, id="nothing"),
        pytest.param("\x01☃", OPTIONS, id="no letter"),
        pytest.param("-1", NUMBERS, id="a number below zero"),
        pytest.param("nan", NUMBERS, id="no number"),
        pytest.param("-1", OPTIONS, id="-1 anywhere", marks=pytest.mark.full),
        pytest.param("nan", OPTIONS, id="nan anywhere", marks=pytest.mark.full),
    ],
)
def test_no_value_of_an_option_brings_a_frameworks_words(
    cli: CommandLine, value: str, options: Sequence[tuple[tuple[str, ...], Any, Any]]
):
    for words, command, param in options:
        if AT_WORK & set(words):
            continue
        ran = cli.run(*words, *arguments(command), f"{param.opts[0]}={value}", stdin="")
        check(ran, f"{' '.join(words)} {param.opts[0]}={value!r}")


def test_an_argument_too_many_or_too_few_is_told_in_words(cli: CommandLine):
    for words, command in COMMANDS:
        if any(one.nargs == -1 for one in command.params):
            continue
        many = cli.run(*words, *["word"] * (1 + len(command.params)))
        assert many.exit_code == 2, words
        check(many, " ".join(words))
        if arguments(command):
            few = cli.run(*words)
            assert few.exit_code == 2, words
            assert "Missing argument" in few.errors
            check(few, " ".join(words))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("login", "--projects", "vision,,speech"), "has an empty name"),
        (("login", "--projects", " "), "has an empty name"),
        (("login", "--projects", "vision", "--with-key"), "leave --projects out"),
        (("login", "--projects", "vision"), "leave --projects out"),
        (("login", "--project", "vision"), "use --projects vision"),
        (("key", "create", "x", "--projects", ","), "has an empty name"),
    ],
)
def test_projects_that_are_none_or_of_no_use_are_refused(
    cli: CommandLine, words: tuple[str, ...], reason: str
):
    refused = cli.run(*words, stdin="lt_x\n")
    assert refused.exit_code == 2
    assert reason in " ".join(refused.errors.split())

"""Commands and messages that the docs quote are those of the product."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer

from tests.support.sources.source_tree import ROOT, strings_of

DOCS = ROOT / "docs"
_ENDS_OF_COMMANDS = {"|", "||", "&&", ">", "#", ";", "·"}


def _program() -> Any:
    from app.cli import main

    [cli] = [value for value in vars(main).values() if isinstance(value, typer.Typer)]
    return typer.main.get_command(cli)


def _quoted_commands() -> Iterator[tuple[str, list[str]]]:
    """(where, words after `lowtide`) of every command in backquotes or at the start of a line."""
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            found = re.findall(r"`(?:docker compose exec (?:-T )?\w+ )?lowtide ([^`]*)`", line)
            found += re.findall(r"^\s*(?:\.venv/bin/)?lowtide ((?:[a-z-]).*)", line)
            for command in found:
                # An apostrophe of a comment ends no quotation.
                words = shlex.split(command.partition(" #")[0].replace("…", " … "))
                yield f"{page.relative_to(ROOT)}:{number}", words


def _options(command: Any) -> set[str]:
    own = {one for item in command.params for one in (*item.opts, *item.secondary_opts)}
    below = (_options(child) for child in getattr(command, "commands", {}).values())
    return own.union({"--help", "-h"}, *below)


def _wrong(program: Any, words: list[str]) -> str | None:
    """What of a command's words the product does not know."""
    command, rest = program, words
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    if command is program and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        return rest[0]
    known = _options(command)
    for word in rest:
        if word in _ENDS_OF_COMMANDS:
            return None
        option = word.partition("=")[0].rstrip(";,.")
        if re.fullmatch(r"--[a-z][a-z-]*|-[a-z]", option) and option not in known:
            return option
    return None


def test_every_command_on_the_pages_has_options_that_exist():
    program = _program()
    commands = list(_quoted_commands())
    assert len(commands) > 150, "the commands were not found"
    wrong = [f"{where}: {word}" for where, words in commands if (word := _wrong(program, words))]
    assert wrong == []


def _said() -> Iterator[str]:
    """What troubleshooting.md quotes of messages: first cells of tables headed "What it says"."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    for table in re.findall(r"^\| What it says \|.*\n(?:\|.*\n)+", page, re.MULTILINE):
        for row in table.splitlines()[2:]:
            cell = row.split(" | ")[0]
            yield from (two or one for two, one in re.findall(r"``(.*?)``|`([^`]+)`", cell))


def test_the_messages_in_troubleshooting_are_those_of_the_product():
    # Figures, names and errors of people's own programs stand between the words of a message.
    between = r"…|\d+|\b[A-Z]\w+Error\b|[;:,.()]"
    sources = (path for room in ("app", "trainer") for path in (ROOT / room).rglob("*.py"))
    known = "\n".join(text for path in sources for _, text in strings_of(path)).lower()
    said = list(_said())
    assert len(said) > 30, "the messages were not found"
    for message in said:
        for words in (part.strip().lower() for part in re.split(between, message)):
            assert _made_of(words, known), f"{message!r}: nothing says {words!r}"


def _made_of(words: str, known: str) -> bool:
    """Whether a sentence of the product has these words, from one literal or from two."""
    spaces = [match.start() for match in re.finditer(" ", words)]
    return words in known or any(words[:at] in known and words[at:] in known for at in spaces)

"""What readers stumbled over stays out: odd idioms, and forms of time that differ by sentence."""

import ast
import itertools
import re
from collections.abc import Iterator

from tests.support.sources.source_tree import ROOT, source_files, strings_of

INSTEAD = {
    r"\bborne out\b": "accurate",
    r"\bdearer\b": "more expensive",
    r"\bat hand\b": "available; current",
    r"\bcan(not)? be had\b|\bcould be had\b": "is available",
    r"\bbe it\b": "even if",
    r"\bmore seldom\b": "less often",
    r"\b(same|other) dice\b": "random seed",
    r"\bprogress costs\b": "per hour of training",
    r"\bcarry what is needed\b": "fit",
    r"\bstands here\b": "appears here",
    r"\bNo wait, but\b": "Waiting will not help",
    r"\bmakes? way\b": "stops; is replaced",
    r"\bbears? (no|both|two|on-demand)\b": "covers; allows",
    r"\b(nobody|somebody) can\b": "name who; use the passive",
    r"\bthe very (step|same)\b|\b(that|this) very\b": "that",
    r"\bgiven back\b|\bgives? (its|the) machines back\b": "released",
}
"""Regular expression: what to write instead."""

# Reports of research and of simulations count in hours, as their tables do.
_APART = (
    "app/simulation/",
    "app/backtest/",
    "app/cli/server/backtest_command.py",
    "app/domain/units/",
)
_UNIT = re.compile(r" (s|m|h|d|min|seconds?|minutes?|hours?|days?)\b")
# Values of one unit, in which people write or set them: no length of time that somebody waited.
_OF_ONE_UNIT = {
    ("app/api/agents/agents.py", "seconds"),
    ("app/cli/jobs/estimate_command.py", "seconds"),
    ("app/domain/spec/trainer_work.py", "hours"),
}


def _texts() -> Iterator[tuple[str, str]]:
    """(where, line of text) of all that people read."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "app").rglob("*.html")]
    for page in pages:
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{page.relative_to(ROOT)}:{number}", line
    for folder in ("app", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            if "simulation" not in path.relative_to(ROOT).parts:
                for number, text in strings_of(path):
                    yield f"{path.relative_to(ROOT)}:{number}", text


def test_no_odd_idiom_is_read_by_anybody():
    found = [
        f"{where}: {match[0]!r}; write: {instead}"
        for where, text in _texts()
        for idiom, instead in INSTEAD.items()
        if (match := re.search(idiom, text))
    ]
    assert found == []


def _handmade() -> Iterator[str]:
    for file in source_files():
        if file.room not in ("app", "workers") or file.name.startswith(_APART):
            continue
        for line, unit in _forms_in(file.tree):
            if (file.name, unit) not in _OF_ONE_UNIT:
                yield f"{file.name}:{line}: {unit}"


def _forms_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, unit or form) of each f-string that writes a time by hand."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, after in zip(node.values, [*node.values[1:], None], strict=True):
            if not isinstance(part, ast.FormattedValue):
                continue
            if part.format_spec is not None and "%H" in ast.unparse(part.format_spec):
                yield part.lineno, "%H"
            if isinstance(after, ast.Constant) and (found := _UNIT.match(str(after.value))):
                yield part.lineno, found[1]


def test_no_sentence_writes_a_time_by_hand() -> None:
    """Lengths of time and points in time have one form each, made in `app.domain.units` alone."""
    handmade = list(_handmade())
    assert not handmade, (
        "use format_duration, exact_duration, measured_duration or format_instant:\n"
        + "\n".join(handmade)
    )


_READ_ROOMS = ("app", "workers", "trainer")
_OF_STEPS = re.compile(r"(^|[._'\"\[])step(['\"]\])?$")
_BEFORE_A_STEP = re.compile(r"\b[Ss]teps? $")


def _plain_steps() -> Iterator[str]:
    for file in source_files():
        if file.room not in _READ_ROOMS or file.name.startswith(_APART[:2]):
            continue
        for node in ast.walk(file.tree):
            if isinstance(node, ast.JoinedStr):
                yield from (f"{file.name}:{line}" for line in _unseparated(node))


def _unseparated(text: ast.JoinedStr) -> Iterator[int]:
    """Lines of a sentence with the number of a step that has no separators."""
    for before, part in itertools.pairwise([ast.Constant(""), *text.values]):
        if not isinstance(part, ast.FormattedValue) or not isinstance(before, ast.Constant):
            continue
        said = str(before.value)
        is_step = _BEFORE_A_STEP.search(said) or (
            said.endswith(" ") and _OF_STEPS.search(ast.unparse(part.value))
        )
        form = "" if part.format_spec is None else ast.unparse(part.format_spec)
        if is_step and "," not in form:
            yield part.lineno


def test_the_number_of_a_step_has_separators_in_every_sentence() -> None:
    assert list(_plain_steps()) == [], "write {step:,}, as every page and command does"


def test_a_product_has_one_sign() -> None:
    found = [where for where, text in _texts() if re.search(r"\d x (?=[\dA-Z])", text)]
    for file in source_files():
        if file.room in _READ_ROOMS and not file.name.startswith(_APART[:2]):
            found += [
                f"{file.name}:{part.lineno}"
                for node in ast.walk(file.tree)
                if isinstance(node, ast.JoinedStr)
                for part in node.values
                if isinstance(part, ast.Constant) and re.search(r"^ x | x $", str(part.value))
            ]
    assert found == [], "write 2 × 3"


# As Python formats a share ("84%") or a day ("01 Nov"); adapters speak the forms of clouds.
_OTHER_FORM = re.compile(r":[+,]?(\.\d)?%\}|\bstrftime\(|:%[A-Za-z]")
_FORMS_APART = ("app/domain/units/", "app/adapters/", "app/simulation/")


def test_percent_and_days_have_one_form():
    """Those of `app.domain.units.percent` and `instants`, in commands, answers and on pages."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for kind in ("*.py", "*.html")
        for path in (ROOT / "app").rglob(kind)
        if not str(path.relative_to(ROOT)).startswith(_FORMS_APART)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _OTHER_FORM.search(line)
    ]
    assert found == []

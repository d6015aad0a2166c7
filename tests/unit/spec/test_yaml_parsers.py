"""libyaml and PyYAML's own parser read the same specs, and refuse the same at one place."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.domain.spec import spec_yaml
from app.domain.spec.spec_text import parse_spec_text
from app.domain.units.errors import SpecError

# Errors of the syntax are told in each parser's own words; all others are ours.
SYNTAX = "not valid YAML"


def read(text: str, loader: type) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec_yaml, "_LOADER", loader)
        try:
            return parse_spec_text(text.encode(), "yaml")
        except SpecError as error:
            return SYNTAX if SYNTAX in error.message else error.message


def test_the_parser_in_use_is_libyaml():
    assert spec_yaml._LOADER is yaml.CSafeLoader


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: [1, 2.5, ~, yes, 0x10, 012, 1_000, 12:30, .5, -0]}\n",
        "a: |\n  x\n   y\n\nb: >-\n  folded\n  text\n\n  more\nc: |2+\n   kept\n\n",
        "# a comment\n---\nrun: 'it''s'\nenv: {A: \"\\u00e9\\n\\x41\"}\n...\n",
        "? run\n: plain\n? env\n: {K: v}\n",
        "a: [x, y: z]\n",
        "{a: 1, b: , c}\n",
        "a:\n- 1\n- - 2\n  - 3\n-\n",
        "a: 1\nb: &x 2\n",
        "a: 1\nb: *x\n",
        "a: 1\nb: !!int 2\n",
        "a: 1\n\n  \nb: 3\na: 2\n",
        "a: {b: 1, c: 2, b: 3}\n",
        "a: 1\n---\nb: 2\n",
        "[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]\n",
        "? [1]\n: 2\n",
        "a: .inf\n",
        "a: 9999999999999999999\n",
        "a: 'x\n",
        "a: [1, 2\nb: 3\n",
        "a: b: c\n",
        "a: \t1\n\tb: 2\n",
        "%YAML 1.1\n---\na: 1\n",
        "%TAG ! tag:x\n---\na: 1\n",
        "k" * 2_000 + ": 1\n",
        "\u00e9\u4e2d\U0001f600: 1\nb: &x 1\n",
    ],
    ids=lambda text: repr(text)[:40],
)
def test_both_parsers_agree(text: str):
    assert read(text, yaml.CSafeLoader) == read(text, yaml.SafeLoader)


WORDS = st.sampled_from(
    ["a", "b: ", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ", "'", '"', "#", "&x ", "*x", "!t ",
     "1", "~", ": ", "? ", "|", ">", "---\n", "\t", "é", "%"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=14).map("".join))
def test_both_parsers_take_the_same_values_from_any_text(text: str):
    """One may be stricter than the other about the syntax; none reads another value."""
    ours, pure = read(text, yaml.CSafeLoader), read(text, yaml.SafeLoader)
    if isinstance(ours, dict) and isinstance(pure, dict):
        assert ours == pure


def test_a_place_is_told_by_both():
    for loader in (yaml.CSafeLoader, yaml.SafeLoader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spec_yaml, "_LOADER", loader)
            with pytest.raises(SpecError, match=r"line \d+, column \d+: not valid YAML"):
                parse_spec_text(b"a: 1\nb: [1\n", "yaml")

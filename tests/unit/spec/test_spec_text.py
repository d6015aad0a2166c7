"""The text of a spec: what is read, and what is refused before any field is looked at."""

import json

import pytest

from app.domain.spec.spec_text import MAX_SPEC_BYTES, SpecTextType, parse_spec_text
from app.domain.units.errors import SpecError


def refused(text: bytes, content_type: SpecTextType) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec_text(text, content_type)
    return caught.value.message


def test_yaml_values_follow_the_core_schema() -> None:
    text = b"""
a: {int: 12, neg: -3, float: 1.5, exp: 1e-3, none: null, tilde: ~, empty: , yes: no, t: true}
b: [0471, 12:30, 2031-01-01, "12", 'x', +7]
c: |
  two
  lines
4711: key
"""
    assert parse_spec_text(text, "yaml") == {
        "a": {"int": 12, "neg": -3, "float": 1.5, "exp": 0.001, "none": None, "tilde": None,
              "empty": None, "yes": "no", "t": True},
        "b": ["0471", "12:30", "2031-01-01", "12", "x", 7],
        "c": "two\nlines\n",
        "4711": "key",
    }  # fmt: skip


def test_json_is_read_with_or_without_a_mark() -> None:
    assert parse_spec_text(b'\xef\xbb\xbf{"a": [1, 2.5, null, "x"]}', "json") == {
        "a": [1, 2.5, None, "x"]
    }


BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "line 1, column 4: anchors"),
        (b"a: 1\nb: *a\n", "line 2, column 4: aliases"),
        (b"a: !!python/object/apply:os.system [ls]\n", "line 1, column 4: tags"),
        (b"a: !!str 1\n", "tags"),
        (b"a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is written twice"),
        (b"a: 1\n---\nb: 2\n", "only one document"),
        (b"? [a]\n: 1\n", "a key must be plain text"),
        (b"a: .nan\n", "finite"),
        (b"a: .inf\n", "finite"),
        (b"a: 1e999\n", "finite"),
        (b"a: " + b"9" * 19 + b"\n", "too large"),
        (b"a: [1, 2\nb: 3\n", "line 2"),
        (b"a: 'x\n", "not valid YAML"),
        (b'a: "\\UFFFFFFFF"\n', "not valid YAML"),
        (b'a: "\\0"\n', "U+0000"),
        (b"[" * 100_000, "nested more than 20"),
        (b"- " * 100_000, "nested more than 20"),
        (b"a: [" + b"1," * 20_000 + b"1]", "5,000 values"),
        (b"- 1\n", "must be a mapping of fields, not a list"),
        (b"just words", "must be a mapping of fields, not text"),
        (b"# nothing\n", "must be a mapping"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_yaml_that_is_refused(text: bytes, words: str) -> None:
    assert words in refused(text, "yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a": x}', "line 1, column 7: not valid JSON"),
        (b'{"a": 1,\n "b" 2}', "line 2, column 6: not valid JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' is written twice"),
        (b'{"a": NaN}', "finite"),
        (b'{"a": -Infinity}', "finite"),
        (b'{"a": 1e999}', "finite"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "too large"),
        (b"[" * 200_000, "nested more than 20"),
        (b'{"a":' * 25 + b"1" + b"}" * 25, "nested more than 20"),
        (b'{"a": [' + b"1," * 6_000 + b"1]}", "5,000 values"),
        (b'{"a": "\\u0000"}', "U+0000"),
        (b'{"a": "\\ud800"}', "U+D800"),
        (b'{"\\u0007": 1}', "U+0007"),
        (b'"a"', "must be a mapping of fields, not text"),
        (b"17", "must be a mapping of fields, not 17"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_json_that_is_refused(text: bytes, words: str) -> None:
    assert words in refused(text, "json")


@pytest.mark.parametrize("content_type", ["yaml", "json"])
def test_bytes_that_are_refused_in_both(content_type: SpecTextType) -> None:
    assert "is empty" in refused(b" \n", content_type)
    assert "at most 262,144" in refused(b" " * (MAX_SPEC_BYTES + 1), content_type)
    assert "line 2: the spec is not UTF-8" in refused(b"a: 1\n\xff", content_type)
    assert "line 2, column 4: control character U+0000" in refused(b"a: 1\nb: \x00", content_type)


def test_depth_at_the_bound_is_accepted() -> None:
    nested: object = 1
    for _ in range(20):
        nested = {"a": nested}
    text = json.dumps(nested).encode()
    assert parse_spec_text(text, "json") == parse_spec_text(text, "yaml") == nested

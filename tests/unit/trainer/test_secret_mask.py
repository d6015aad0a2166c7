"""Values of secrets in what a machine sends: hidden however the text is cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trainer.agent.rules.agent_state import TrainerEnd
from trainer.agent.rules.observations import (
    OutputsFailed,
    PreparationFailed,
    ShutdownAsked,
    TrainerExited,
)
from trainer.agent.secrets.masked_observations import masked
from trainer.agent.secrets.secret_mask import SecretMask, StreamMask
from trainer.protocol.agent_report import TrainerError, TrainerOutcome

KEY = "hunter2-of-wandb"


def mask_of(*values: str) -> SecretMask:
    mask = SecretMask()
    mask.hide(values)
    return mask


def streamed(mask: SecretMask, *pieces: bytes) -> bytes:
    stream = StreamMask(mask)
    return b"".join([*map(stream.feed, pieces), stream.end()])


def test_a_value_is_hidden_over_the_border_of_pieces():
    mask = mask_of(KEY)
    assert streamed(mask, b"key=hunter2", b"-of-wandb!\n") == b"key=***!\n"
    assert streamed(mask, *(bytes([one]) for one in f"a {KEY} b".encode())) == b"a *** b"


def test_a_value_whose_end_never_came_is_hidden_from_eight_characters_on():
    mask = mask_of(KEY)
    assert streamed(mask, b"ends with hunter2-of") == b"ends with ***"
    assert streamed(mask, b"ends with hunt", b"er2-") == b"ends with ***"
    assert streamed(mask, b"ends with hunter2") == b"ends with hunter2"
    assert mask.text(f"cut off as messages are: {KEY}"[:-1]) == "cut off as messages are: ***"


def test_only_what_may_begin_a_value_is_held_back():
    stream = StreamMask(mask_of(KEY))
    assert stream.feed(b"step 1\nhunt") == b"step 1\n"
    assert stream.feed(b"ing\n") == b"hunting\n"
    assert StreamMask(SecretMask()).feed(b"hunt") == b"hunt"


def test_values_that_overlap_leave_no_rest():
    mask = mask_of("abcdefgh12", "gh12345678")
    assert mask.text("x abcdefgh12345678 y") == "x *** y"
    assert mask_of("aaaaaaaa").text("a" * 30) == "***"
    assert mask_of("aaaaaaaa", f"aaaaaaaa{KEY}").text("aaaaaaaahunter!") == "***hunter!"


def test_a_value_of_several_lines_is_hidden_line_by_line():
    mask = mask_of("-----BEGIN KEY-----\n  c2VjcmV0LWtleQ==\nshort\n")
    assert mask.text("| c2VjcmV0LWtleQ==\r\nshort\n") == "| ***\r\nshort\n"
    assert mask_of("  padded-value\n").text("padded-value") == "***"


def test_a_short_value_is_left_alone():
    assert mask_of("seven77", "").text("seven77 of seven") == "seven77 of seven"


def test_what_is_not_unicode_passes():
    assert mask_of(KEY).text(f"\ud800 {KEY}") == "\ud800 ***"
    assert streamed(mask_of("schlüssel-ä"), "der schlüssel-ä\xff".encode("latin-1")) == (
        "der schlüssel-ä\xff".encode("latin-1")
    )


_LETTERS = st.text("ab\n", min_size=8, max_size=14)


@given(st.lists(_LETTERS, min_size=1, max_size=3), st.data())
def test_however_it_is_cut_the_same_is_sent_and_no_value(values: list[str], data: st.DataObject):
    mask = mask_of(*values)
    parts = st.one_of(st.sampled_from(values), st.text("ab\n", max_size=6))
    whole = "".join(data.draw(st.lists(parts, max_size=8))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    borders = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(borders)]
    sent = streamed(mask, *pieces)
    assert sent.decode() == mask.text(whole.decode())
    assert all(pattern not in sent for pattern in mask.hidden.patterns)


def test_errors_that_quote_the_output_are_masked_and_nothing_else():
    mask = mask_of(KEY)
    error = TrainerError(f"401 for {KEY}", type=f"{KEY}Error")
    seen = masked(mask, TrainerExited(3, TrainerEnd(TrainerOutcome.FAILED, 1, error=error)))
    assert isinstance(seen, TrainerExited)
    assert seen.end.error == TrainerError("401 for ***", type="***Error")
    assert (seen.fence, seen.end.exit_code) == (3, 1)
    failed = masked(mask, PreparationFailed(3, "setup", f"pip: {KEY}"))
    assert isinstance(failed, PreparationFailed)
    assert failed.message == "pip: ***"
    assert masked(mask, OutputsFailed(3, f"{KEY}.txt is a link")) == OutputsFailed(
        3, "***.txt is a link"
    )
    asked = ShutdownAsked(30.0)
    assert masked(mask, asked) is asked

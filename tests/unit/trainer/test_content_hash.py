"""The hash of checkpoints: what it must find, and that it stays what it is."""

from __future__ import annotations

import hashlib
import random

import pytest

from trainer.training.checkpoint.content_hash import BLOCK_BYTES, CHUNK_BYTES, ContentHash

KEY = b"a key of a test"
SIZE = 40 * BLOCK_BYTES + 1234
EXPECTED_SMALL = "bd1b1961caf6f35ae0f54624158ff891ff70e82de9a33f08163cbbb3dc8dad6e"
EXPECTED_LARGE = "3da3173ac17e5e402a8b547b067cbcdd8089132456275584204a23e770bb1e92"


@pytest.fixture(scope="module")
def content() -> bytes:
    # Half noise, half zeros: states have both.
    noise = random.Random(5).randbytes(SIZE // 2)
    return noise + bytes(SIZE - len(noise))


def test_its_value_never_changes(content: bytes) -> None:
    """Checkpoints outlive versions; these values were computed once and written down."""
    hashing = ContentHash(KEY)
    assert hashing.chunks(b"") == []
    assert hashing.chunk(b"lowtide") == EXPECTED_SMALL
    assert hashing.chunk(content) == EXPECTED_LARGE


def test_it_is_the_formula_that_is_written_down() -> None:
    """The same in plain Python, from the module's text alone."""
    text = random.Random(1).randbytes(BLOCK_BYTES + 9)
    drawn = hashlib.shake_256(KEY).digest(2 * BLOCK_BYTES)
    words = [int.from_bytes(drawn[at : at + 8], "little") | 1 for at in range(0, len(drawn), 8)]
    whole, upper = words[:512], words[512:]
    blocks = [text[:BLOCK_BYTES], text[BLOCK_BYTES:].ljust(BLOCK_BYTES, b"\0")]
    lines: list[list[int]] = [[], []]
    for block in blocks:
        values = [int.from_bytes(block[at : at + 8], "little") for at in range(0, len(block), 8)]
        lines[0].append(sum(a * x for a, x in zip(whole, values, strict=True)) % 2**64)
        lines[1].append(sum(b * (x >> 32) for b, x in zip(upper, values, strict=True)) % 2**64)
    digest = hashlib.sha256(len(text).to_bytes(8, "little"))
    for line in lines:
        digest.update(b"".join(value.to_bytes(8, "little") for value in line))
    assert ContentHash(KEY).chunk(text) == digest.hexdigest()


def test_a_thousand_single_bits_are_all_found(content: bytes) -> None:
    hashing, dice = ContentHash(KEY), random.Random(7)
    good = hashing.chunk(content)
    damaged = bytearray(content)
    missed = 0
    for _ in range(1000):
        at, bit = dice.randrange(SIZE), 1 << dice.randrange(8)
        damaged[at] ^= bit
        missed += hashing.chunk(damaged) == good
        damaged[at] ^= bit
    assert missed == 0
    assert hashing.chunk(damaged) == good


def test_two_flipped_bits_of_one_block_are_found_even_the_signs_of_floats() -> None:
    """Modulo 2^64 two highest bits cancel out under any odd multipliers: `upper` must see them."""
    hashing, dice = ContentHash(KEY), random.Random(9)
    block = dice.randbytes(BLOCK_BYTES)
    good = hashing.chunk(block)
    for bit in (63, 63, 62, 40, 33, 32, 31, 0):
        first, second = dice.sample(range(BLOCK_BYTES // 8), 2)
        damaged = bytearray(block)
        for word in (first, second):
            damaged[word * 8 + bit // 8] ^= 1 << bit % 8
        assert hashing.chunk(damaged) != good


def test_moved_zeroed_missing_and_added_blocks_are_found(content: bytes) -> None:
    hashing = ContentHash(KEY)
    good = hashing.chunk(content)
    page = BLOCK_BYTES
    others = {
        "swapped": content[page : 2 * page] + content[:page] + content[2 * page :],
        "zeroed": bytes(page) + content[page:],
        "repeated": content[:page] + content[:page] + content[2 * page :],
        "cut by a block": content[:-page],
        "cut by a byte of zeros": content[:-1],
        "a zero more": content + b"\0",
        "shifted": content[1:] + content[:1],
    }
    assert [name for name, other in others.items() if hashing.chunk(other) == good] == []


def test_chunks_have_hashes_of_their_own_and_keys_matter() -> None:
    content = bytes(CHUNK_BYTES + 1)
    first, second = ContentHash(KEY).chunks(content)
    assert first == ContentHash(KEY).chunk(bytes(CHUNK_BYTES))
    assert second == ContentHash(KEY).chunk(b"\0")
    noise = random.Random(2).randbytes(100)
    assert ContentHash(KEY).chunk(noise) != ContentHash(b"another").chunk(noise)

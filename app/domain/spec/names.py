"""Names made for jobs that came without one: two words and a number ("quiet-harbor-417").

Also how long a name may be. Pure: the randomness is an argument. What else a name may look like is
a rule of the job spec.
"""

NAME_LENGTH_MAX = 63
"""Characters of a job's name, or of a label's name."""

_ADJECTIVES = (
    "amber", "bold", "brisk", "calm", "clear", "coral", "early", "fair",
    "fresh", "gentle", "golden", "grand", "green", "keen", "late", "light",
    "lively", "lucid", "mellow", "mild", "neat", "noble", "open", "pale",
    "plain", "proud", "quick", "quiet", "ready", "salty", "silver", "steady",
)  # fmt: skip
_NOUNS = (
    "anchor", "bay", "beach", "breeze", "brook", "buoy", "canal", "cape",
    "channel", "cliff", "coast", "cove", "creek", "current", "delta", "dune",
    "fjord", "gull", "harbor", "heron", "inlet", "island", "lagoon", "marsh",
    "pebble", "pier", "reef", "river", "shell", "shore", "tide", "wave",
)  # fmt: skip
_NUMBERS = 900

DEFAULT_NAME_COUNT = len(_ADJECTIVES) * len(_NOUNS) * _NUMBERS


def default_name(words_seed: int) -> str:
    """The name for a seed; equal seeds give equal names, and `DEFAULT_NAME_COUNT` names exist.

    The number is 100 to 999, so that names line up in a table.
    """
    rest, number = divmod(words_seed % DEFAULT_NAME_COUNT, _NUMBERS)
    adjective, noun = divmod(rest, len(_NOUNS))
    return f"{_ADJECTIVES[adjective]}-{_NOUNS[noun]}-{number + 100}"


def default_prefixes() -> tuple[str, ...]:
    """What the made names begin with, before their number."""
    return tuple(f"{adjective}-{noun}" for adjective in _ADJECTIVES for noun in _NOUNS)

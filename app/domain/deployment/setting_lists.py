"""Settings that are lists with commas, as environment variables write them: words, folders,
addresses, networks.

Each reader takes text and gives a set; another value passes as it is. Not here: which setting is
which (`app.settings`).
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

Network = IPv4Network | IPv6Network


def read_words(value: object) -> object:
    """`"local, aws"` as a set of words in lower case."""
    if not isinstance(value, str):
        return value
    return frozenset(word.lower() for word in _parts(value))


def read_folders(value: object) -> object:
    """`"/data/ckpt, /scratch"` as a set of folders. Raises ValueError for a part of a path."""
    if not isinstance(value, str):
        return value
    folders = frozenset(Path(word) for word in _parts(value))
    if not all(folder.is_absolute() for folder in folders):
        raise ValueError("must name folders by their whole path, like /data/checkpoints")
    return folders


def read_buckets(value: object) -> object:
    """`"s3://a/x, gs://b"` as a set of addresses without a slash at the end.

    Raises ValueError for any other address.
    """
    wanted = "buckets, with a path if need be, like s3://acme/checkpoints"
    return _addresses(value, ("s3://", "gs://"), wanted)


def read_places(value: object) -> object:
    """The same, of folders too."""
    wanted = "addresses like s3://acme/corpus or file:///data"
    return _addresses(value, ("s3://", "gs://", "file:///"), wanted)


def read_networks(value: object) -> object:
    """`"10.0.0.7, 172.16.0.0/12, ::1"` as a set of networks. Raises ValueError for what is none."""
    if not isinstance(value, str):
        return value
    try:
        return frozenset(ip_network(word) for word in _parts(value))
    except ValueError:
        wanted = "IP addresses or networks, like 10.0.0.7 or 172.16.0.0/12"
        raise ValueError(f"must name {wanted}") from None


def _addresses(value: object, schemes: tuple[str, ...], wanted: str) -> object:
    if not isinstance(value, str):
        return value
    found = frozenset(word.rstrip("/") for word in _parts(value))
    if not all(one.startswith(schemes) for one in found):
        raise ValueError(f"must name {wanted}")
    return found


def _parts(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]

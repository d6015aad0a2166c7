"""Which addresses may be called: every kind that leads inward."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from app.domain.notifications.outgoing_addresses import (
    AddressKind,
    kind_of_address,
    may_be_called,
    may_be_called_in_clear,
    require_possible,
)
from app.domain.units.errors import InvalidValue

EVERYTHING = (ip_network("0.0.0.0/0"), ip_network("::/0"))
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
KINDS = {
    "1.1.1.1": AddressKind.PUBLIC,
    "2606:4700::1111": AddressKind.PUBLIC,
    "10.0.0.7": AddressKind.PRIVATE,
    "172.31.255.255": AddressKind.PRIVATE,
    "192.168.1.1": AddressKind.PRIVATE,
    "127.9.9.9": AddressKind.LOOPBACK,
    "::1": AddressKind.LOOPBACK,
    "169.254.1.1": AddressKind.LINK_LOCAL,
    "fe80::1%eth0": AddressKind.LINK_LOCAL,
    "169.254.169.254": AddressKind.METADATA,
    "fd00:ec2::254": AddressKind.METADATA,
    "fd00:ec2::23": AddressKind.METADATA,
    "168.63.129.16": AddressKind.METADATA,
    "100.100.100.200": AddressKind.METADATA,
    "100.64.0.1": AddressKind.SHARED,
    "fd12:3456::1": AddressKind.UNIQUE_LOCAL,
    "fec0::1": AddressKind.PRIVATE,
    "::ffff:127.0.0.1": AddressKind.MAPPED,
    "::ffff:1.1.1.1": AddressKind.MAPPED,
    "::7f00:1": AddressKind.MAPPED,
    "2002:7f00:1::": AddressKind.MAPPED,
    "2001:0:7f00:1::": AddressKind.MAPPED,
    "64:ff9b::7f00:1": AddressKind.TRANSLATED,
    "64:ff9b:1::7f00:1": AddressKind.TRANSLATED,
    "224.0.0.1": AddressKind.MULTICAST,
    "ff02::1": AddressKind.MULTICAST,
    "0.0.0.0": AddressKind.RESERVED,
    "198.18.0.1": AddressKind.RESERVED,
    "255.255.255.255": AddressKind.RESERVED,
    "4000::1": AddressKind.RESERVED,
}
NEVER = {
    address
    for address, kind in KINDS.items()
    if kind
    in (
        AddressKind.LINK_LOCAL,
        AddressKind.METADATA,
        AddressKind.MAPPED,
        AddressKind.TRANSLATED,
        AddressKind.MULTICAST,
    )
}


@pytest.mark.parametrize(("written", "kind"), KINDS.items())
def test_only_public_addresses_are_called_unless_a_network_is_allowed(
    written: str, kind: AddressKind
):
    address = ip_address(written)
    assert kind_of_address(address) is kind
    assert may_be_called(address, ()) is (kind is AddressKind.PUBLIC)
    assert may_be_called(address, EVERYTHING) is (written not in NEVER)


def test_without_tls_only_loopback_is_called_and_only_where_it_is_allowed():
    here, public = ip_address("127.0.0.1"), ip_address("1.1.1.1")
    assert may_be_called_in_clear(here, LOOPBACK)
    assert not may_be_called_in_clear(here, ())
    assert not may_be_called_in_clear(public, EVERYTHING)
    assert not may_be_called_in_clear(ip_address("10.0.0.1"), EVERYTHING)


@pytest.mark.parametrize(
    ("host", "encrypted", "fault"),
    [
        ("hooks.example.com", False, "without encryption"),
        ("10.0.0.7", True, "is private"),
        ("127.0.0.1", False, "is loopback"),
        ("169.254.169.254", True, "metadata"),
    ],
)
def test_a_host_that_no_call_would_reach_is_refused_at_once(host: str, encrypted: bool, fault: str):
    with pytest.raises(InvalidValue, match=fault):
        require_possible(host, (), encrypted=encrypted)


def test_a_name_and_an_allowed_address_pass():
    require_possible("hooks.example.com", (), encrypted=True)
    require_possible("localhost", (), encrypted=False)
    require_possible("127.0.0.1", LOOPBACK, encrypted=False)
    require_possible("10.0.0.7", (ip_network("10.0.0.0/8"),), encrypted=True)

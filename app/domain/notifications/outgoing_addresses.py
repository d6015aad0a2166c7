"""Which IP addresses Lowtide may call on behalf of a person who names a host.

A name is resolved by whoever owns it, so it may lead into our own network, or to the service that
hands out the credentials of the machine. Every address is judged before it is called. Not here: the
call (`app.adapters.outgoing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from app.domain.deployment.setting_lists import Network
from app.domain.units.errors import InvalidValue

Address = IPv4Address | IPv6Address


class AddressKind(StrEnum):
    """What an address is; `public` alone may be called unless a network is allowed."""

    PUBLIC = "public"
    PRIVATE = "private"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    METADATA = "a cloud's metadata service"
    SHARED = "shared by a provider's customers (CGNAT)"
    UNIQUE_LOCAL = "unique local"
    MAPPED = "an IPv4 address in IPv6"
    TRANSLATED = "translated to IPv4 (NAT64)"
    MULTICAST = "multicast"
    RESERVED = "reserved"


NEVER_CALLED: Final = frozenset(
    {
        AddressKind.LINK_LOCAL,
        AddressKind.METADATA,
        AddressKind.MAPPED,
        AddressKind.TRANSLATED,
        AddressKind.MULTICAST,
    }
)
"""Not even in a network that an operator allows: credentials, or other names of other addresses."""

_KINDS: Final[tuple[tuple[Network, AddressKind], ...]] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        # AWS, GCP, Azure and others; all that AWS serves instances by IPv6, credentials of pods
        # included; GCP by IPv6; Azure; Alibaba; Oracle.
        ("169.254.169.254/32", AddressKind.METADATA),
        ("fd00:ec2::/32", AddressKind.METADATA),
        ("fd20:ce::254/128", AddressKind.METADATA),
        ("168.63.129.16/32", AddressKind.METADATA),
        ("100.100.100.200/32", AddressKind.METADATA),
        ("192.0.0.192/32", AddressKind.METADATA),
        ("127.0.0.0/8", AddressKind.LOOPBACK),
        ("::1/128", AddressKind.LOOPBACK),
        ("10.0.0.0/8", AddressKind.PRIVATE),
        ("172.16.0.0/12", AddressKind.PRIVATE),
        ("192.168.0.0/16", AddressKind.PRIVATE),
        ("100.64.0.0/10", AddressKind.SHARED),
        ("169.254.0.0/16", AddressKind.LINK_LOCAL),
        ("fe80::/10", AddressKind.LINK_LOCAL),
        ("fc00::/7", AddressKind.UNIQUE_LOCAL),
        ("fec0::/10", AddressKind.PRIVATE),
        ("::ffff:0:0/96", AddressKind.MAPPED),
        # IPv4-compatible, SIIT, 6to4 and Teredo carry an IPv4 address, too.
        ("::ffff:0:0:0/96", AddressKind.MAPPED),
        ("::/96", AddressKind.MAPPED),
        ("2002::/16", AddressKind.MAPPED),
        ("2001::/32", AddressKind.MAPPED),
        ("64:ff9b::/96", AddressKind.TRANSLATED),
        ("64:ff9b:1::/48", AddressKind.TRANSLATED),
        ("224.0.0.0/4", AddressKind.MULTICAST),
        ("ff00::/8", AddressKind.MULTICAST),
    )
)
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
"""Source: IANA's IPv6 address space; everything else is not given to anybody."""
_BROADCAST: Final = IPv4Network("240.0.0.0/4")


def kind_of_address(address: Address) -> AddressKind:
    """What an address is. A scope, as in fe80::1%eth0, changes nothing."""
    bare = ip_address(str(address).partition("%")[0])
    for network, kind in _KINDS:
        if bare.version == network.version and bare in network:
            return kind
    outside = bare in _BROADCAST if bare.version == 4 else bare not in _GLOBAL_IPV6
    return AddressKind.RESERVED if outside or not bare.is_global else AddressKind.PUBLIC


def may_be_called(address: Address, allowed: Collection[Network]) -> bool:
    """Whether an address may be called. allowed: networks besides the public ones."""
    kind = kind_of_address(address)
    if kind is AddressKind.PUBLIC:
        return True
    return kind not in NEVER_CALLED and _is_in(address, allowed)


def may_be_called_in_clear(address: Address, allowed: Collection[Network]) -> bool:
    """Whether a call may do without TLS: on loopback alone, where an operator allows loopback."""
    return kind_of_address(address) is AddressKind.LOOPBACK and _is_in(address, allowed)


def require_possible(host: str, allowed: Collection[Network], *, encrypted: bool) -> None:
    """Raises InvalidValue for a host that no call would ever reach, as far as its name tells."""
    address: Address | None = None
    with contextlib.suppress(ValueError):
        address = ip_address(host)
    here = host == "localhost" or (
        address is not None and kind_of_address(address) is AddressKind.LOOPBACK
    )
    if not encrypted and not here:
        raise InvalidValue(
            f"{host} would be called without encryption: use https:// for a webhook, `tls` or "
            "`starttls` for mail"
        )
    if address is not None and not may_be_called(address, allowed):
        raise InvalidValue(
            f"{host} is {kind_of_address(address)}: only public addresses are called, and networks "
            "that the operator names in LOWTIDE_NOTIFICATION_NETWORKS"
        )


def _is_in(address: Address, networks: Collection[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)

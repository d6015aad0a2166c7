"""What EC2 refuses of a launch's network interfaces, from each type's own recorded data.

Sources: DescribeInstanceTypes as recorded in moto (NetworkInfo, with each card's InterfaceTypes);
"Maximize network bandwidth on Amazon EC2 instances with multiple network cards" in EC2's user
guide (the first interface is no EFA-only one, one EFA to a card); NetworkCardIndex and
AssociatePublicIpAddress in EC2's service model ("The primary network interface must be assigned to
network card index 0", "You cannot specify more than one network interface"). The message about
public addresses is EC2's own; the codes of the others are not documented.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from moto.ec2.models.instance_types import INSTANCE_TYPES

CODE: Final = "InvalidParameterCombination"
_EFA: Final = ("efa", "efa-only")


def network_problem(instance_type: str, asked: list[dict[str, Any]]) -> str | None:
    """Why EC2 launches no machine of the type with these interfaces; None: it does."""
    facts = INSTANCE_TYPES[instance_type]["NetworkInfo"]
    cards = {one["NetworkCardIndex"]: one for one in facts["NetworkCards"]}
    if len(asked) > 1 and any("AssociatePublicIpAddress" in one for one in asked):
        return (
            "The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces"
        )
    used: Counter[int] = Counter()
    efa: Counter[int] = Counter()
    places = [(int(one.get("NetworkCardIndex", 0)), int(one["DeviceIndex"])) for one in asked]
    if len(set(places)) != len(places):
        return f"two network interfaces share a place: {places}"
    if asked and places[0] != (0, 0):
        return "The primary network interface must be assigned to network card index 0."
    for (index, _), one in zip(places, asked, strict=True):
        kind = one.get("InterfaceType", "interface")
        if index not in cards:
            return f"Network card index {index} does not exist on instance type {instance_type}"
        if kind not in cards[index]["InterfaceTypes"]:
            return (
                f"Interface type '{kind}' is not supported on network card index {index} of "
                f"instance type {instance_type}"
            )
        used[index] += 1
        efa[index] += kind in _EFA
    if asked and asked[0].get("InterfaceType") == "efa-only":
        return "An EFA-only network interface cannot be the primary network interface."
    if any(number > cards[index]["MaximumNetworkInterfaces"] for index, number in used.items()):
        return f"too many network interfaces on a card of {instance_type}"
    if max(efa.values(), default=0) > 1:
        return "only one Elastic Fabric Adapter can be attached to a network card"
    if sum(efa.values()) > facts.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        return f"too many Elastic Fabric Adapters for {instance_type}"
    return None


def takes_cluster_groups(instance_type: str) -> bool:
    """Whether machines of the type can be placed into a cluster placement group."""
    groups = INSTANCE_TYPES[instance_type]["PlacementGroupInfo"]
    return "cluster" in groups["SupportedStrategies"]

"""EC2's placement scores: how likely it calls a Spot request to succeed, 1 to 10.

Shown to people, never used to choose: the score assumes another way of choosing pools than ours,
and a request of few GPU types scores low whatever its chance.
"""

from __future__ import annotations

from app.adapters.providers.aws.client.clients import AwsClients

SCORED_REGIONS_MAX = 10


def placement_scores(
    clients: AwsClients, regions: tuple[str, ...], instance_types: tuple[str, ...], count: int
) -> dict[str, int]:
    """Scores by region, at most ten. Raises ProviderError, `quota` where too many were asked."""
    reply = clients.ask(
        "ec2",
        regions[0],
        "get_spot_placement_scores",
        InstanceTypes=list(instance_types),
        TargetCapacity=count,
        TargetCapacityUnitType="units",
        SingleAvailabilityZone=False,
        RegionNames=list(regions[:SCORED_REGIONS_MAX]),
    )
    return {row["Region"]: int(row["Score"]) for row in reply.get("SpotPlacementScores", [])}

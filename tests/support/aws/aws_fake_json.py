"""Price lists and service quotas of the fake AWS, in their JSON protocols.

Not here: EC2 (`aws_fake_ec2`) and what moto answers by itself.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.support.aws.aws_fake_http import Answer
from tests.support.aws.aws_world import TYPES, AwsWorld

PRICED_AT = datetime(2026, 10, 1, tzinfo=UTC)
_QUOTAS = {
    ("G and VT", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("P4, P3 and P2", True): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("P5", True): ("L-C4BD4855", "All P5 Spot Instance Requests"),
    ("G and VT", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("P4, P3 and P2", False): ("L-417A185B", "Running On-Demand P instances"),
}


def json_answer(document: Any, status: int = 200) -> Answer:
    return status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(document).encode()


def json_error(code: str, message: str, status: int) -> Answer:
    return json_answer({"__type": code, "message": message}, status)


def answer_pricing(world: AwsWorld, action: str, asked: dict[str, Any]) -> Answer:
    """GetProducts: JSON strings, filtered as asked, two to a page."""
    if action != "GetProducts":
        return json_error("InvalidParameterException", action, 400)
    wanted = {one["Field"]: one["Value"] for one in asked.get("Filters", [])}
    products = [
        product
        for name, (price, vcpus, _) in sorted(TYPES.items())
        if _matches(product := _product(name, price, vcpus, wanted), wanted)
    ]
    start = int(asked.get("NextToken") or 0)
    page: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(one) for one in products[start : start + 2]],
    }
    if start + 2 < len(products):
        page["NextToken"] = str(start + 2)
    return json_answer(page)


def _matches(product: dict[str, Any], wanted: dict[str, str]) -> bool:
    attributes = product["product"]["attributes"]
    return all(attributes.get(name) == value for name, value in wanted.items())


def _product(name: str, microusd: int, vcpus: int, wanted: dict[str, str]) -> dict[str, Any]:
    usd = f"{microusd / 1_000_000:.10f}"
    return {
        "product": {
            "sku": f"SKU{name}",
            "attributes": {
                "instanceType": name,
                "regionCode": wanted.get("regionCode", "us-east-1"),
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "servicecode": "AmazonEC2",
                "vcpu": str(vcpus),
            },
        },
        "terms": {
            "OnDemand": {
                f"SKU{name}.JRTCKXETXF": {
                    "effectiveDate": PRICED_AT.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "priceDimensions": {
                        "x": {"unit": "Hrs", "pricePerUnit": {"USD": usd}},
                    },
                }
            }
        },
    }


def answer_kms(keys: dict[str, str], action: str, asked: dict[str, Any]) -> Answer:
    """DescribeKey of the keys that there are, by their id or alias."""
    name = asked.get("KeyId", "")
    if action != "DescribeKey" or name not in keys:
        return json_error("NotFoundException", f"Key '{name}' does not exist", 400)
    return json_answer({"KeyMetadata": {"KeyId": "1234abcd", "KeyState": keys[name]}})


def answer_quotas(world: AwsWorld, action: str, asked: dict[str, Any]) -> Answer:
    """ListServiceQuotas of ec2, two to a page; a quota nobody set is 0, as on a new account."""
    if action != "ListServiceQuotas" or asked.get("ServiceCode") != "ec2":
        return json_error("NoSuchResourceException", action, 400)
    rows = [
        {
            "ServiceCode": "ec2",
            "QuotaCode": code,
            "QuotaName": name,
            "Value": float(world.quotas.get(key, 0)),
            "Unit": "None",
            "Adjustable": True,
        }
        for key, (code, name) in sorted(_QUOTAS.items())
    ]
    start = int(asked.get("NextToken") or 0)
    page: dict[str, Any] = {"Quotas": rows[start : start + 2]}
    if start + 2 < len(rows):
        page["NextToken"] = str(start + 2)
    return json_answer(page)

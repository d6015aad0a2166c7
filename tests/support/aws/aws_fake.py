"""A whole AWS account on loopback, for the real SDK: moto made honest, with a hand to steer it.

Lives here: opening, closing and steering the account. Not here: its rules (`aws_world`,
`aws_fake_ec2`). One at a time in a process: moto's records are global.
"""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from moto.backends import get_backend
from moto.ec2.models.amis import AMIS

from tests.support.aws.aws_authorization import Authority
from tests.support.aws.aws_fake_ec2 import Ec2, backend, tree_of, xml_error
from tests.support.aws.aws_fake_garble import garbled
from tests.support.aws.aws_fake_http import Answer, AwsServer, Dropped, ask_moto, hang
from tests.support.aws.aws_fake_json import answer_kms, answer_pricing, answer_quotas, json_error
from tests.support.aws.aws_made_once import drop_accounts
from tests.support.aws.aws_world import ACCOUNT, IMAGE, REGIONS, AwsWorld, Fault, now

QUEUE = "lowtide-interruptions"
NETWORK_TAG = ("lowtide:network", "default")
IMAGE_PARAMETER = "/test/deep-learning/ami-id"
# moto makes thousands of images for every account and region, which took half of each test's time.
_IMAGES = Path(__file__).with_name("aws_images.json")
os.environ["MOTO_AMIS_PATH"] = str(_IMAGES)
AMIS[:] = json.loads(_IMAGES.read_text(encoding="utf-8"))
_SIGNED_FOR = timedelta(minutes=5)


class AwsFake:
    """The account and its server."""

    def __init__(self, world: AwsWorld) -> None:
        self.world = world
        self._ec2 = Ec2(world)
        self.policy: list[Any] | None = None
        """The caller's only policy; None: everything is allowed."""
        self.assume: Callable[[Any, dict[str, str]], Answer] | None = None
        """What answers AssumeRole (headers, form); None: moto."""
        self.keys: dict[str, str] = {}
        """Keys of KMS by id or alias, with their state."""
        self._prepare()
        self._server = AwsServer(self)
        self.url = self._server.url

    @property
    def queue_url(self) -> str:
        return f"{self.url}/{ACCOUNT}/{QUEUE}"

    def close(self) -> None:
        self._server.close()
        drop_accounts()

    def answer(
        self,
        region: str,
        service: str,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        """One request; see `aws_fake_http`."""
        target = {name.lower(): value for name, value in headers.items()}.get("x-amz-target", "")
        form = dict(parse_qsl(body.decode("latin-1"))) if not target else {}
        action = target.rpartition(".")[2] or form.get("Action", "")
        if service == "s3" and path.endswith("?location"):
            action = "GetBucketLocation"
        if self._expired(headers):
            return _clock_error(service, json_protocol=bool(target))
        trouble = self.world.region_faults.get(region)
        if trouble is not None and service in ("ec2", "s3", "sts"):
            hang(trouble[2])
            if not trouble[0]:
                raise Dropped
            if service == "sts":
                # Each region has an STS of its own, which knows no keys of an account that has not
                # enabled it (IAM user guide, "Manage AWS STS in an AWS Region").
                trouble = ("InvalidClientTokenId", 403, 0.0)
            reply = (_s3_error if service == "s3" else xml_error)(
                trouble[0], "injected for the region", trouble[1]
            )
        elif action == "AssumeRole" and self.assume is not None:
            reply = self.assume(headers, form)
        elif service != "ec2":
            reply = self._other(region, service, action, method, path, headers, body)
        elif region not in REGIONS:
            reply = xml_error("OptInRequired", f"{region} is not enabled", 403)
        else:
            refused = self._authorized(region, body)
            reply = refused or self._ec2.answer(region, path, headers, body)
        with self.world.lock:
            kind = self.world.garble(action) if reply[0] == 200 else None
        return reply if kind is None else garbled(kind, reply)

    def _expired(self, headers: dict[str, str]) -> bool:
        """Signatures hold for five minutes ("Elements of an AWS API request signature")."""
        signed = {name.lower(): value for name, value in headers.items()}.get("x-amz-date")
        if signed is None:
            return False
        at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return abs(datetime.now(UTC) + self.world.clock_ahead - at) > _SIGNED_FOR

    def _other(
        self,
        region: str,
        service: str,
        action: str,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        """Every service but EC2."""
        json_protocol = any(name.lower() == "x-amz-target" for name in headers)
        hang(self.world.hang_seconds.get(action, 0.0))
        with self.world.lock:
            self.world.calls[action] += 1
            fault = self.world.fault(action)
        if fault is not None:
            hang(fault.hang_seconds)
            error = json_error if json_protocol else xml_error
            return error(fault.code, fault.message, fault.status)
        told = json.loads(body) if json_protocol else dict(parse_qsl(body.decode("latin-1")))
        refusal = self._refusal(region, service, action, told)
        if refusal is not None:
            error = json_error if json_protocol else xml_error
            return error("AccessDeniedException", refusal, 400)
        if action == "ReceiveMessage" and not self.world.queue_waits:
            body = json.dumps({**json.loads(body), "WaitTimeSeconds": 0}).encode()
        with self.world.lock:
            if service == "kms":
                reply = answer_kms(self.keys, action, json.loads(body))
            elif service in ("pricing", "servicequotas"):
                speak = answer_pricing if service == "pricing" else answer_quotas
                reply = speak(self.world, action, json.loads(body))
            else:
                reply = ask_moto(region, service, method, path, headers, body)
            if self.world.lost[action] > 0:
                self.world.lost[action] -= 1
                raise Dropped
            return reply

    def _authorized(self, region: str, body: bytes) -> Answer | None:
        """EC2's answer to a call that is not allowed, or that is a dry run; None: go on.

        A fault comes first, and a dry run of what EC2 would not find says so (EC2 API Reference,
        "DryRun": an error other than DryRunOperation comes where the call itself would fail).
        """
        asked = tree_of(dict(parse_qsl(body.decode(), keep_blank_values=True)))
        action = str(asked.get("Action", ""))
        # moto does a read in earnest, whatever DryRun says.
        reads = asked.get("DryRun") == "true" and action.startswith("Describe")
        if any(one.action == action and one.times for one in self.world.faults):
            return None
        if self.policy is None and not reads:
            return None
        with self.world.lock:
            refusal = self._refusal(region, "ec2", action, asked)
            if refusal is not None:
                self.world.calls[action] += 1
                text = f"{refusal}. Encoded authorization failure message: 8sJ2k"
                return xml_error("UnauthorizedOperation", text, 403)
            if asked.get("DryRun") != "true":
                return None
            self.world.calls[action] += 1
        text = "Request would have succeeded, but DryRun flag is set."
        return xml_error("DryRunOperation", text, 412)

    def _refusal(self, region: str, service: str, action: str, asked: dict[str, Any]) -> str | None:
        if self.policy is None:
            return None
        return Authority(self.policy).refusal(region, service, action, asked)

    def fail(self, action: str, code: str, status: int = 400, **more: Any) -> None:
        """Inject an error; `where` (a type or zone) puts it into a fleet's Errors."""
        name = "override" if more.get("where") else action
        self.world.faults.append(Fault(name, code, status, **more))

    def garble(self, action: str, kind: str, times: int = 1) -> None:
        """The next answers of the action arrive damaged; kinds are those of `aws_fake_garble`."""
        self.world.garbled += [(action, kind)] * times

    def take(self, machine_id: str) -> None:
        """EC2 takes a spot machine."""
        text = "Server.SpotInstanceTermination: Spot instance termination"
        with self.world.lock:
            self._ec2.take(machine_id, "Server.SpotInstanceTermination", text)

    def end(self, machine_id: str, code: str) -> None:
        """A machine ends for another reason."""
        with self.world.lock:
            self._ec2.take(machine_id, code, f"{code}: injected")

    def terminate_by_another(self, machine_id: str) -> None:
        """Somebody else of the account terminates a machine: EC2 says of it what it says of us."""
        with self.world.lock:
            self._ec2.terminate(machine_id)

    def instance(self, machine_id: str) -> Any:
        """moto's record of a machine."""
        return backend(self.world.machines[machine_id].region).get_instance(machine_id)

    def records(self, region: str) -> Any:
        """moto's records of EC2 in a region."""
        return backend(region)

    def publish(
        self,
        detail_type: str,
        detail: dict[str, Any],
        at: datetime | None = None,
        *,
        region: str = REGIONS[0],
        source: str = "aws.ec2",
    ) -> None:
        """An event of EventBridge's rule in the region's queue."""
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": detail_type,
            "source": source,
            "account": ACCOUNT,
            "time": f"{at or now():%Y-%m-%dT%H:%M:%SZ}",
            "region": region,
            "resources": [f"arn:aws:ec2:us-east-1a:instance/{detail.get('instance-id')}"],
            "detail": detail,
        }
        self.put_message(json.dumps(event), region)

    def put_message(self, text: str, region: str = REGIONS[0]) -> None:
        """Any text in the queue."""
        with self.world.lock:
            get_backend("sqs")[ACCOUNT][region].send_message(QUEUE, text)

    def messages_left(self, region: str = REGIONS[0]) -> int:
        """Messages not yet deleted."""
        with self.world.lock:
            return len(get_backend("sqs")[ACCOUNT][region].queues[QUEUE]._messages)

    def price_steps(self, instance_type: str, zone: str, *steps: tuple[float, int]) -> None:
        """Prices that took effect so many seconds ago."""
        for seconds, price in steps:
            self.world.set_price(instance_type, zone, price, now() - timedelta(seconds=seconds))

    def _prepare(self) -> None:
        """Subnets and a security group that carry the network's tag, the queue, an image."""
        key, value = NETWORK_TAG
        for region in REGIONS:
            records = backend(region)
            for subnet in records.describe_subnets():
                if subnet.availability_zone[-1] in "abc":
                    subnet.add_tags({key: value})
            for group in records.describe_security_groups():
                group.add_tags({key: value})
                records.authorize_security_group_ingress(
                    group.id, "-1", None, None, [], {}, [{"GroupId": group.id}]
                )
            image = copy.copy(next(iter(records.amis.values())))
            image.id = IMAGE
            records.amis[IMAGE] = image
            get_backend("ssm")[ACCOUNT][region].put_parameter(
                IMAGE_PARAMETER, "", IMAGE, "String", "", "", False, [], "text", None, None
            )
            get_backend("sqs")[ACCOUNT][region].create_queue(QUEUE)


def _s3_error(code: str, message: str, status: int) -> Answer:
    told = f"<Code>{code}</Code><Message>{message}</Message>"
    return status, {"Content-Type": "application/xml"}, f"<Error>{told}</Error>".encode()


def _clock_error(service: str, *, json_protocol: bool) -> Answer:
    """What each kind of service says of a signature that is too old."""
    if json_protocol:
        return json_error("InvalidSignatureException", "Signature expired", 400)
    if service == "s3":
        return _s3_error("RequestTimeTooSkewed", "The difference is too large.", 403)
    if service == "ec2":
        return xml_error("RequestExpired", "Request has expired.", 400)
    told = "<Code>SignatureDoesNotMatch</Code><Message>Signature expired</Message>"
    answer = f"<ErrorResponse><Error><Type>Sender</Type>{told}</Error></ErrorResponse>"
    return 403, {"Content-Type": "text/xml"}, answer.encode()


@contextmanager
def open_aws_fake(**rules: Any) -> Iterator[AwsFake]:
    """A new account; `rules` are those of `AwsWorld`."""
    fake = AwsFake(AwsWorld(**rules))
    try:
        yield fake
    finally:
        fake.close()

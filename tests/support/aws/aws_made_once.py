"""What botocore and moto make anew for each client, key or request, made once: it never differs.

Done when this module is imported, and half of what a test of the AWS provider took. Not here: what
the account holds, which is each test's own (`aws_fake`).
"""

from __future__ import annotations

import functools
from typing import Any

from botocore.client import ClientCreator
from moto.backends import get_backend
from moto.core import responses
from moto.core.base_backend import BackendDict
from moto.kms import models as kms_models

_creator: Any = ClientCreator
_responses: Any = responses
_kms: Any = kms_models
_make_methods: Any = _creator._create_methods
_methods: dict[tuple[str, str], dict[str, Any]] = {}


def _methods_once(creator: Any, service_model: Any) -> dict[str, Any]:
    """A class for each client, as ever; the hundreds of functions of a service are shared."""
    key = (service_model.service_name, service_model.api_version)
    if key not in _methods:
        _methods[key] = _make_methods(creator, service_model)
    return dict(_methods[key])


def drop_accounts() -> None:
    """Empty moto's accounts. Its own reset makes every network of EC2 anew, and drops it then."""
    ec2: Any = get_backend("ec2")
    ec2.clear()
    BackendDict.reset()


_creator._create_methods = _methods_once
_responses.method_names_from_class = functools.cache(_responses.method_names_from_class)
# The key of encrypted volumes: a pair of 2,048 bits that nothing is encrypted with.
_kms.generate_private_key = functools.cache(_kms.generate_private_key)

"""Derived secrets: one-time launch tokens and instance credentials.

Both are keyed hashes under the deployment's secret, so that a lost reply can be answered again
with the same value while the database holds only digests. Not here: people's API keys.
"""

from __future__ import annotations

import hashlib
import hmac


def derive(secret: str, purpose: str, *parts: str) -> str:
    """HMAC-SHA-256 of the parts under the deployment's secret, hex, 256 bits."""
    message = "\x1f".join((purpose, *parts)).encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def digest(text: str) -> str:
    """What is stored of a high-entropy secret: its SHA-256, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def launch_token(secret: str, launch_id: str) -> str:
    """The token that the user data of one launch carries."""
    return derive(secret, "launch", launch_id)


def instance_credential(secret: str, instance_id: str, nonce: str) -> str:
    """The credential of one instance; the same nonce always gets the same one."""
    return derive(secret, "instance", instance_id, nonce)

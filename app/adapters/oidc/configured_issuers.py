"""The issuers that the settings name, with their clients' secrets, read without asking any of them.

So that what is wrong with their file is said by whoever starts or checks a deployment, before the
api does. Not here: the issuers at work (`oidc_issuer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from app.adapters.oidc.issuer_addresses import require_safe
from app.adapters.oidc.issuers_file import IssuerEntry, IssuersFileError, read_issuers, secret_of
from app.adapters.oidc.oidc_variables import OidcVariables

_VARIABLE: Final = "LOWTIDE_OIDC_FILE"


@dataclass(frozen=True)
class ConfiguredIssuer:
    """An entry of the file, and the secret of its client; None for a client without one."""

    entry: IssuerEntry
    secret: str | None = field(repr=False)


def configured_issuers(settings: OidcVariables, own_address: str) -> list[ConfiguredIssuer]:
    """The issuers of the settings' file; none without a file.

    own_address: where browsers reach Lowtide. Raises IssuersFileError, which names the variable.
    """
    if settings.oidc_file is None:
        return []
    try:
        require_safe(own_address)
    except ValueError as error:
        raise IssuersFileError(
            f"LOWTIDE_PUBLIC_URL: {error}: issuers send people back there, with a code that gives "
            "a session"
        ) from None
    try:
        entries = read_issuers(settings.oidc_file)
        return [
            ConfiguredIssuer(entry, secret_of(entry, settings.oidc_client_secrets))
            for entry in entries
        ]
    except IssuersFileError as error:
        raise IssuersFileError(f"{_VARIABLE}: {error}") from None

"""The file of `LOWTIDE_OIDC_FILE`: issuers, how Lowtide is known to them, and what groups give.

Not here: asking an issuer anything (`oidc_issuer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)

from app.adapters.oidc.issuer_addresses import require_safe
from app.domain.access.identity_rules import ISSUER_NAME, IssuerRules
from app.domain.access.key_rules import require_name
from app.domain.access.roles import Role
from app.domain.spec.spec_yaml import read_yaml
from app.domain.units.errors import DomainError

_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 8
_VALUES_MAX: Final = 50_000
_ISSUERS_MAX: Final = 10
_SECRET_MAX: Final = 4_096

Text = Annotated[str, Field(min_length=1, max_length=500)]


class IssuersFileError(Exception):
    """The file cannot be used; the message says what, where and what to do, and no secret."""


def _project(name: str) -> str:
    try:
        require_name(name, "project")
    except DomainError as error:
        raise ValueError(error.message) from None
    return name


def _domain(written: str) -> str:
    domain = written.strip().casefold()
    if "@" in domain or "." not in domain:
        raise ValueError("must be a domain, like example.com")
    return domain


class IssuerEntry(BaseModel):
    """One issuer, as the file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=f"^{ISSUER_NAME.pattern}$")]
    label: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    issuer: Annotated[Text, AfterValidator(require_safe)]
    client_id: Text
    client_secret_file: Path | None = None
    scopes: tuple[Text, ...] = ("openid", "profile", "email")
    groups_claim: Text = "groups"
    groups_claim_optional: bool = False
    groups: Mapping[Text, Mapping[Annotated[str, AfterValidator(_project)], Role]] = {}
    email_domains: Annotated[
        frozenset[Annotated[str, AfterValidator(_domain)]], BeforeValidator(frozenset)
    ] = frozenset()

    @property
    def needs_groups_claim(self) -> bool:
        """Whether a token without the claim is refused, as it does not say who is in no group."""
        return bool(self.groups) and not self.groups_claim_optional

    @property
    def rules(self) -> IssuerRules:
        """What is believed of it."""
        return IssuerRules(
            self.name, self.label or self.name, self.issuer, self.groups, self.email_domains
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    issuers: Annotated[list[IssuerEntry], Field(min_length=1, max_length=_ISSUERS_MAX)]


def read_issuers(path: Path) -> list[IssuerEntry]:
    """The issuers of a file. Raises IssuersFileError with everything that is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise IssuersFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _BYTES_MAX:
        raise IssuersFileError(f"{path} is larger than 1 MB")
    try:
        data = read_yaml(content.decode(), max_depth=_DEPTH_MAX, max_values=_VALUES_MAX)
        entries = _File.model_validate(data).issuers
    except UnicodeDecodeError:
        raise IssuersFileError(f"{path} is not UTF-8") from None
    except DomainError as error:
        raise IssuersFileError(f"{path}: {error.message}") from None
    except ValidationError as error:
        raise IssuersFileError(f"{path}: {'; '.join(_sentences(error))}") from None
    for noun in ("name", "issuer"):
        taken = [getattr(entry, noun) for entry in entries]
        if len(set(taken)) < len(taken):
            raise IssuersFileError(f"{path}: two issuers have the same {noun}; write each once")
    return entries


def secret_of(entry: IssuerEntry, given: Mapping[str, SecretStr]) -> str | None:
    """The client's secret, from its file or from `given`; None for a client without one.

    Raises IssuersFileError.
    """
    path = entry.client_secret_file
    if path is None:
        secret = given.get(entry.name)
        return None if secret is None else secret.get_secret_value()
    try:
        with path.open(encoding="utf-8") as file:
            found = file.read(_SECRET_MAX + 1).strip()
    except (OSError, ValueError) as error:
        raise IssuersFileError(
            f"the client secret of the issuer {entry.name!r} cannot be read from {path}: "
            f"{_unreadable(error)}"
        ) from None
    if not 1 <= len(found) <= _SECRET_MAX:
        raise IssuersFileError(f"{path}: a client secret has 1 to {_SECRET_MAX:,} characters")
    return found


def _unreadable(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    is_text = isinstance(error, UnicodeDecodeError)
    return "it is not UTF-8" if is_text else "no file can have such a name"


def _sentences(error: ValidationError) -> list[str]:
    sentences = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        told = problem["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
        sentences.append(f"{place or 'the file'}: {told[:1].lower()}{told[1:]}")
    return sentences

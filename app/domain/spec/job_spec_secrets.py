"""The kind of value that names secrets in a job spec, the project's or a cloud's: never a secret.

Not here: whether the project has them (`app.orchestration.secrets.name_secrets`), or what machines
do with them (`trainer.agent.secrets`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from app.domain.deployment.cloud_secrets import is_cloud_name, read_cloud_name
from app.domain.deployment.secret_rules import require_secret_name
from app.domain.spec.spec_document import SecretDocument
from app.domain.spec.spec_value import Written, kind_of, refusal
from app.domain.units.errors import InvalidValue
from trainer.protocol.run_config import SecretUse

MAX_SECRETS: Final = 64
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_KEYS: Final = {"name", "from", "file"}
_HOW: Final = "write [NAME], or [{name: NAME, file: key.json}] to get a file"
_HOW_FROM: Final = "write {name: NAME, from: 'aws-sm:…'} with the name of the variable"


def _read_secrets(value: object) -> tuple[SecretUse, ...] | None:
    """Sorted by name; None for an empty list, which asks for nothing."""
    if isinstance(value, Mapping) and value:
        # As other tools write it. What is in it may be a value, which is not repeated.
        raise refusal(
            f"names secrets of the project, never their values: {_HOW}, and set the value with "
            "`lowtide secret set NAME`"
        )
    if not isinstance(value, list | tuple):
        raise refusal(f"must be a list of names: {_HOW}")
    if len(value) > MAX_SECRETS:
        raise refusal(f"must name at most {MAX_SECRETS} secrets, not {len(value)}")
    uses = [_read_use(one) for one in value]
    for field, given in (("name", [use.name for use in uses]), ("file", _files(uses))):
        twice = next((one for one in given if given.count(one) > 1), None)
        if twice is not None:
            raise refusal(f"has the {field} {twice!r} twice; keep one of them")
    return tuple(sorted(uses, key=lambda use: use.name)) or None


def _files(uses: Sequence[SecretUse]) -> list[str]:
    return [use.file for use in uses if use.file is not None]


def _read_use(written: object) -> SecretUse:
    if isinstance(written, SecretUse):
        return written
    if isinstance(written, str):
        return _named(written, None, None)
    if not isinstance(written, Mapping) or not {"name"} <= set(written) <= _KEYS:
        shown = "a mapping with other keys" if isinstance(written, Mapping) else kind_of(written)
        raise refusal(f"cannot hold {shown}; {_HOW}")
    return _named(written["name"], written.get("from"), written.get("file"))


def _named(name: object, source: object, file: object) -> SecretUse:
    """A cloud's name alone also gives the variable's, where its last part can be one."""
    if isinstance(name, str) and is_cloud_name(name):
        if source is not None:
            raise refusal(f"has a cloud's name as `name` beside `from`; {_HOW_FROM}")
        source, name = name, _variable(name)
    variable = _name(name)
    text = None if source is None else _source(source, variable)
    if file is None:
        return SecretUse(variable, source=text)
    if not isinstance(file, str) or _FILE.fullmatch(file) is None:
        raise refusal(
            "file must be a name such as key.json, of letters, digits and ._-: the file is in a "
            "folder in memory, and the variable has its path",
            variable,
        )
    return SecretUse(variable, file, text)


def _variable(source: str) -> str:
    try:
        found = read_cloud_name(source).variable
    except InvalidValue as error:
        raise refusal(f"has a name of a cloud's secret that {error.message}") from error
    if found is None:
        raise refusal(
            "has the name of a cloud's secret whose last part cannot be a variable, which has "
            f"letters, digits and _, with no digit first; {_HOW_FROM}"
        )
    return found


def _source(source: object, variable: str) -> str:
    if not isinstance(source, str):
        raise refusal(f"from must be text such as aws-sm:NAME, not {kind_of(source)}", variable)
    try:
        return str(read_cloud_name(source))
    except InvalidValue as error:
        raise refusal(f"from {error.message}", variable) from error


def _name(written: object) -> str:
    """Raises a refusal, which does not repeat a text that may be the secret itself."""
    if not isinstance(written, str):
        raise refusal(f"must name secrets by text, not {kind_of(written)}")
    try:
        require_secret_name(written)
    except InvalidValue as error:
        if error.message.startswith("name: names"):
            raise refusal(error.message.removeprefix("name: ")) from error
        raise refusal(
            "has a text that cannot name a secret: a name has letters, digits and _, with no digit "
            "first. If it is a value, set it with `lowtide secret set NAME`, and write NAME"
        ) from error
    return written


def _store_secrets(uses: Sequence[SecretUse] | None) -> list[str | SecretDocument] | None:
    return None if uses is None else [_store_use(use) for use in uses]


def _store_use(use: SecretUse) -> str | SecretDocument:
    if use.source is None and use.file is None:
        return use.name
    stored = SecretDocument(name=use.name)
    if use.source is not None:
        stored["from"] = use.source
    if use.file is not None:
        stored["file"] = use.file
    return stored


_TEXT: Final = {"type": "string"}
_FORM: Final = {
    "type": "array",
    "maxItems": MAX_SECRETS,
    "items": {
        "anyOf": [
            _TEXT,
            {
                "type": "object",
                "properties": {"name": _TEXT, "from": _TEXT, "file": _TEXT},
                "required": ["name"],
                "additionalProperties": False,
            },
        ]
    },
    "examples": [
        [
            "WANDB_API_KEY",
            {"name": "GCP_KEY", "file": "gcp.json"},
            {"name": "DATABASE_URL", "from": "aws-sm:vision/database"},
        ]
    ],
}

SecretName = Annotated[str, Written(_name, _TEXT)]
Secrets = Annotated[tuple[SecretUse, ...] | None, Written(_read_secrets, _FORM, _store_secrets)]

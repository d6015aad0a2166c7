"""The file with the prices of contracts, as a setting: part of `Settings`.

Read once, at the start of each program. Not here: what prices it may set
(`app.domain.launch_limits.contract_prices`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode

from app.domain.launch_limits.contract_prices import NO_CONTRACT, ContractPrices, parse_contract
from app.domain.spec.spec_text import MAX_DEPTH
from app.domain.spec.spec_yaml import read_yaml
from app.domain.units.errors import SpecError

_BYTES_MAX: Final = 256 * 1024
_VALUES_MAX: Final = 20_000


def read_contract(written: object) -> ContractPrices:
    """The prices in the file of that name; prices are returned as they are.

    Raises ValueError with a sentence on what is wrong with the file.
    """
    if isinstance(written, ContractPrices):
        return written
    path = Path(str(written))
    if not path.is_absolute():
        # Programs of one deployment run in several folders.
        raise ValueError("must be a whole path, like /etc/lowtide/contract.yaml")
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    if len(content) > _BYTES_MAX:
        raise ValueError(f"the file has more than {_BYTES_MAX >> 10} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the file is not UTF-8 text; save it as UTF-8") from error
    try:
        return parse_contract(read_yaml(text, max_depth=MAX_DEPTH, max_values=_VALUES_MAX))
    except SpecError as error:
        raise ValueError(f"the file: {error.message}") from error


class ContractVariables(BaseSettings):
    """`LOWTIDE_CONTRACT_PRICES`."""

    contract_prices: Annotated[ContractPrices, NoDecode, BeforeValidator(read_contract)] = Field(
        default=NO_CONTRACT,
        description="File with the prices that a contract with a cloud sets in place of its list "
        "prices: discounts in percent, and prices of single machine types "
        "([limits.md](limits.md#contract-prices))",
        json_schema_extra={"default": None},
    )

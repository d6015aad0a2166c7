"""`python -m tests.cloud`: say which real accounts are tested, and test them.

Ends with 0 when nothing was to be tested, 2 when an account is named that cannot be used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cloud.accounts import PREFIX, accounts_of

_HOW = f"""Nothing was tested: no real account is named. To test one, with credentials in place:
  {PREFIX}AWS_REGION=us-east-1     and a subnet and a security group tagged
                                  lowtide:network=default, or their ids in
                                  {PREFIX}AWS_SUBNETS and {PREFIX}AWS_SECURITY_GROUPS
  {PREFIX}GCP_PROJECT=my-project   machines in us-central1-a and -b, or in
                                  {PREFIX}GCP_REGION and {PREFIX}GCP_ZONES
It rents about twenty of the smallest machines, for a minute or two each: some cents."""


def main() -> int:
    """The exit code for the shell."""
    try:
        accounts = accounts_of(os.environ)
    except ValueError as error:
        print(f"Nothing was tested: {error}", file=sys.stderr)
        return 2
    if not accounts:
        print(_HOW)
        return 0
    problems = {one.name: problem for one in accounts if (problem := one.problem()) is not None}
    for name, problem in problems.items():
        print(f"Nothing was tested: {name}: {problem}", file=sys.stderr)
    if problems:
        return 2
    print(f"Testing real accounts: {', '.join(one.name for one in accounts)}", flush=True)
    return int(
        pytest.main(["-p", "no:xdist", "-v", str(Path(__file__).with_name("real_accounts.py"))])
    )


if __name__ == "__main__":
    sys.exit(main())

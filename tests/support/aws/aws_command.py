"""The `aws` command on recorded answers: checks what it is told by botocore's own models.

A program, for scripts that call the CLI: `STUB_STATE` names a JSON file with the answers by
operation, `STUB_CALLS` the file that gets a line of JSON for each call. Not here: real calls.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
from botocore import xform_name
from botocore.validate import validate_parameters

_OF_THE_CLI = {"--region", "--output", "--query"}


def main(words: list[str]) -> int:
    """Answer one call as `--output text` does; 252 for one that the CLI would not understand."""
    service, operation, *rest = words
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in names or options.get("--output") != "text":
        return 252
    shape = model.operation_model(names[operation]).input_shape
    members = {f"--{xform_name(name, '-')}": name for name in shape.members}
    if set(options) - set(members) - _OF_THE_CLI:
        return 252
    given: dict[str, Any] = {}
    for option, name in members.items():
        if option in options:
            number = shape.members[name].type_name == "double"
            given[name] = float(options[option]) if number else options[option]
    validate_parameters(given, shape)
    with Path(os.environ["STUB_CALLS"]).open("a", encoding="utf-8") as calls:
        line = {"operation": operation, "region": options["--region"], **given}
        calls.write(json.dumps(line) + "\n")
    answer = json.loads(Path(os.environ["STUB_STATE"]).read_text("utf-8"))[operation]
    found = jmespath.search(options["--query"], answer)
    rows = found if found and isinstance(found[0], list) else [found] if found else []
    for row in rows:
        print("\t".join(str(one) for one in row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

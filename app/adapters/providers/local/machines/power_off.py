"""What a local machine runs to switch itself off: `power_off.py CLOUD_FOLDER MACHINE_ID`.

A program, started without this project on its path: standard library only. The cloud kills the
machine's processes, this one among them, so it rarely lives to see its answer.
"""

import http.client
import json
import socket
import sys
from pathlib import Path

_TIMEOUT_SECONDS = 10.0


def main(folder: str, machine_id: str) -> int:
    """0 when the cloud took the request, 1 when it did not answer."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(_TIMEOUT_SECONDS)
    connection = http.client.HTTPConnection("localhost", timeout=_TIMEOUT_SECONDS)
    connection.sock = link
    try:
        link.connect((Path(folder) / "cloud.address").read_text("utf-8").strip())
        connection.request("POST", "/power_off", body=json.dumps({"machine_id": machine_id}))
        return 0 if connection.getresponse().status == 200 else 1
    except OSError as error:
        print(f"the local cloud does not answer: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

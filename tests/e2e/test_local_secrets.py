"""A job on the local cloud tries to read what is the control plane's, and another job's.

Real programs as root, a real job. Its interpreter and this checkout may lie where only root may
enter: then the job's command sees just what it needs of that.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import submit, submit_endless

LOOKER = r"""
import json, os, pathlib, socket, sys

state, other = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
report = {"uid": os.getuid(), "groups": os.getgroups(), "home": os.environ["HOME"]}
pathlib.Path(os.environ["HOME"], "mine").touch()
pathlib.Path("mine").touch()

def tells(path):
    try:
        return path.open("rb").read(200).decode("utf-8", "replace")
    except OSError:
        return None

def listed(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return None

secrets = ["admin.key", "secrets.key", "postgres_password", "valkey_password", "logs/api.log",
           "logs/worker.log", "cloud/cloud.log", "valkey/valkey.conf", "up.out"]
report["read"] = {name: found for name in secrets if (found := tells(state / name)) is not None}
report["listed"] = {
    str(path): found
    for path in (state, state / "logs", state / "store", state / "store/checkpoints",
                 state / "cloud", state / "cloud/machines", other, other / "workdir",
                 other / "agent", pathlib.Path(os.getcwd()).parent / "agent")
    if (found := listed(path)) is not None
}
own = os.getuid()
report["environs"] = []
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            environ = pathlib.Path(f"/proc/{name}/environ")
            if os.stat(environ).st_uid != own and tells(environ):
                report["environs"].append(int(name))
        except OSError:
            pass
for name in ("admin.key", "planted"):
    try:
        (state / name).open("ab").close()
        report["read"][f"write {name}"] = ""
    except OSError:
        pass
report["socket"] = False
with socket.socket(socket.AF_UNIX) as link:
    try:
        link.connect(str(state / "cloud/cloud.sock"))
        report["socket"] = True
    except OSError as error:
        report["refused"] = error.errno
report["environment"] = dict(os.environ)
try:
    os.setuid(0)
    report["root"] = True
except OSError:
    report["root"] = False
print("REPORT" + json.dumps(report), flush=True)
"""


def test_a_job_reads_neither_the_control_planes_secrets_nor_another_jobs_files(
    plane: ControlPlane,
):
    neighbour = submit_endless(plane)
    neighbour.until_step(1)
    [machine] = neighbour.machines()
    state = plane.state_dir
    other = state / "cloud/machines" / machine["provider_instance_id"] / "disk"
    assert (other / "workdir").is_dir()
    report = _look(plane, other)
    neighbour.end_here()

    assert report["uid"] >= 60_578
    assert report["groups"] == []
    assert report["read"] == {}
    assert report["listed"] == {}
    assert report["environs"] == []
    assert report["root"] is False
    assert (report["socket"], report["refused"]) == (False, errno.EACCES)
    assert Path(report["home"]).name == "home"
    told = json.dumps(report["environment"])
    for name in ("admin.key", "postgres_password", "valkey_password"):
        assert (state / name).read_text().strip() not in told
    for name in ("DATABASE_URL", "REDIS_URL", "LAUNCH_TOKEN", "CONTROL_URL", "AWS_SECRET"):
        assert name not in told


def _look(plane: ControlPlane, other: Path) -> dict[str, Any]:
    workdir = plane.upload({"look.py": LOOKER})
    command = f"python look.py {plane.state_dir} {other}"
    job = submit(plane, workdir=workdir, run=command, resources={"gpu": "V100"}, infra=["local"])
    job.finish()
    [line] = [one for one in job.logs().splitlines() if "REPORT" in one]
    report: dict[str, Any] = json.loads(line.partition("REPORT")[2])
    return report

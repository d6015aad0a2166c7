"""A Python of a machine's own on top of Lowtide's: what a job's setup installs goes there.

Lowtide's virtual environment belongs to root, and other jobs run on it. Not here: whose user a job
is (`job_accounts`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

_NAME: Final = "python"
_PIP: Final = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'


def make_python(disk: Path, uid: int) -> Path | None:
    """The environment's `bin`, on the machine's disk; the number owns it. Raises OSError.

    None where Lowtide runs in no virtual environment: pip then installs for the user by itself.
    """
    if sys.prefix == sys.base_prefix:
        return None
    root = disk / _NAME
    if root.exists():
        return root / "bin"
    draft = root.with_suffix(".new")
    ours = sysconfig.get_path("purelib")
    theirs = Path(sysconfig.get_path("purelib", "venv", {"base": str(draft)}))
    (draft / "bin").mkdir(parents=True)
    theirs.mkdir(parents=True)
    home = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
    version = ".".join(map(str, sys.version_info[:3]))
    (draft / "pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    # addsitedir, because an editable installation is a .pth in there.
    (theirs / "lowtide.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    for name in ("python", "python3"):
        (draft / "bin" / name).symlink_to(Path(sys.executable).resolve())
    for name in ("pip", "pip3"):
        (draft / "bin" / name).write_text(_PIP)
        (draft / "bin" / name).chmod(0o755)
    for folder, _, names in os.walk(draft):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            os.chown(path, uid, uid, follow_symlinks=False)
    draft.rename(root)  # whole or not at all
    return root / "bin"

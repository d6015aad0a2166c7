"""What a job's command on a local machine is started by: `enter_account.py UID SHOWN COMMAND…`.

A program, started as root without this project on its path: standard library only. It gives up
root for a user number that owns nothing else, and becomes the command. SHOWN is a JSON object:
folders that only root may enter, each with the folders below it that the command needs. In a mount
namespace of the command's own these stand alone where the closed folder was.
"""

import ctypes
import json
import os
import sys

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_PR_SET_NO_NEW_PRIVS = 38
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(uid: int, shown: dict[str, list[str]], command: list[str]) -> None:
    """Never returns. Raises OSError, also where the kernel does not allow what is needed."""
    here = os.getcwd()
    if shown:
        _show_only(shown)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # No program that belongs to root gives root back.
    _require(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    os.chdir(here)  # by its path: the folder may lie in the new view
    os.execvp(command[0], command)


def _show_only(shown: dict[str, list[str]]) -> None:
    _require(_LIBC.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)
    umask = os.umask(0o022)
    for closed, folders in shown.items():
        handles = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in folders]
        _mount("lowtide", closed, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0711,size=1m")
        for path, handle in handles:
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{handle}", path, None, _MS_BIND | _MS_REC, None)
            os.close(handle)
    os.umask(umask)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    done = _LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _require(done, f"mount {target}")


def _require(code: int, deed: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{deed}: {os.strerror(number)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])

# The Python that the agent runs on, its pip, and the trainer's PyTorch.

# A Python that the agent can run on, of those with PyTorch first; the last is one fetched before.
find_python() {
    python=
    for one in ${LOWTIDE_PYTHON:-$root/opt/pytorch/bin/python3 $root/opt/conda/bin/python3 \
        $root/opt/conda/envs/pytorch/bin/python3 $root/opt/venv/bin/python3 \
        python3 python3.13 python3.12 python3.11} "$home"/python/*/bin/python3; do
        path=$(command -v "$one") || continue
        "$path" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if [ -z "$python" ]; then python=$path; fi
        if has_torch "$path"; then
            python=$path
            break
        fi
    done
    if [ -n "$python" ]; then return; fi
    if [ -e "$home/python" ]; then
        fail "the Python that was fetched does not run on this machine, or is older than 3.11"
    fi
    [ -n "${LOWTIDE_MACHINE_PYTHON_URL:-}" ] ||
        fail "this image has no Python 3.11 or newer: set LOWTIDE_MACHINE_PYTHON_URL"
    fetch_python
    find_python
}

has_torch() { "$1" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; }

fetch_python() {
    # What follows the question mark may be a signature.
    from=${LOWTIDE_MACHINE_PYTHON_URL%%\?*} wait=${LOWTIDE_BOOT_WAIT_SECONDS:-300}
    archive=$home/python.tar
    say "fetching a Python from $from"
    if command -v curl > /dev/null; then
        set -- curl -fsSL --retry 5 --connect-timeout 20 -o "$archive"
    elif command -v wget > /dev/null; then
        set -- wget -q -T 20 -O "$archive"
    else
        set -- python3 -c 'import sys, urllib.request as r; r.urlretrieve(sys.argv[2], sys.argv[1])' \
            "$archive"
    fi
    if ! timeout "$wait" "$@" "$LOWTIDE_MACHINE_PYTHON_URL" 2> "$archive.log"; then
        why=$(tail -n 1 "$archive.log")
        fail "no Python came from $from within $wait s${why:+: $why}"
    fi
    found=$(sha256sum "$archive")
    found=${found%% *}
    [ "$found" = "$LOWTIDE_MACHINE_PYTHON_SHA256" ] ||
        fail "the Python from $from has the SHA-256 $found, not $LOWTIDE_MACHINE_PYTHON_SHA256"
    mkdir -p "$home/python"
    tar -xf "$archive" --no-same-owner -C "$home/python" >> "$log" 2>&1 ||
        fail "the Python from $from cannot be unpacked: $(tail -n 1 "$log")"
    rm "$archive"
}

# Ubuntu's cloud images have a Python without pip: into a folder of its own, from the package index.
fetch_pip() {
    timeout "${LOWTIDE_BOOT_WAIT_SECONDS:-300}" "$python" - "$home/pip" <<'PY'
import hashlib, html, io, os, re, sys, urllib.parse, urllib.request, zipfile
index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
def read(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read(64 << 20)
try:
    found = re.findall(r'href="([^"#]*pip-([0-9.]+)-py3-none-any\.whl)#sha256=([0-9a-f]{64})"',
                       read(index).decode())
    if not found:
        raise ValueError("it lists none")
    link, _, wanted = max(found, key=lambda one: [int(part) for part in one[1].split(".")])
    body = read(urllib.parse.urljoin(index, html.unescape(link)))
    if hashlib.sha256(body).hexdigest() != wanted:
        raise ValueError("it has another SHA-256 than was stated")
    zipfile.ZipFile(io.BytesIO(body)).extractall(sys.argv[1])
except (OSError, ValueError, zipfile.BadZipFile) as error:
    sys.exit(f"this image's Python has no pip, and {index} gave none: {error}")
PY
}

# The environment $1 of the agent and of jobs, over what the image's Python has.
make_venv() {
    "$python" -m venv --clear --without-pip --system-site-packages "$1" >> "$log" 2>&1 ||
        fail "a virtual environment cannot be made with $python: see $log"
    # What the image brings (PyTorch) is seen also where its Python is a virtual environment.
    paths=$(echo "$1"/lib/python3*/site-packages)/lowtide-image.pth
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$paths"
    if [ -d "$home/pip" ]; then echo "$home/pip" >> "$paths"; fi
    # For `setup`: Ubuntu's own pip refuses outside of an environment, and some images have none.
    # The trainer's user cannot write here, so what it installs goes to its own ~/.local.
    printf '#!/bin/sh\nexec "%s/bin/python" -m pip "$@"\n' "$1" > "$1/bin/pip"
    chmod 755 "$1/bin/pip"
    cp "$1/bin/pip" "$1/bin/pip3"
}

# Into the virtual environment $1 what follows. What is unpacked lies beside the checkpoints, on fast
# disks where there are any, and nothing is kept twice.
pip_install() {
    into=$1
    shift
    TMPDIR=$LOWTIDE_MACHINE_DIR PYTHONPATH=$home/pip${PYTHONPATH:+:$PYTHONPATH} \
        timeout "${LOWTIDE_BOOT_INSTALL_SECONDS:=450}" "$python" -m pip --python "$into/bin/python" \
        install --no-input --no-cache-dir -q --disable-pip-version-check "$@" >> "$log" 2>&1
    code=$?
    if [ $code -eq 124 ]; then echo "pip took longer than $LOWTIDE_BOOT_INSTALL_SECONDS s" >> "$log"; fi
    return $code
}

# The bundled trainer runs on PyTorch, which a cloud's base image lacks. An image's own is kept: it
# fits the image's driver.
install_torch() {
    wanted=${LOWTIDE_MACHINE_TORCH:-}
    if [ "${LOWTIDE_AGENT_EXTRAS:-}" != trainer ] || [ -z "$wanted" ]; then return; fi
    if has_torch "$python"; then return; fi
    say "this image has no PyTorch: installing $wanted"
    # Several requirements stand between spaces.
    pip_install "$1" $wanted || fail "$wanted cannot be installed: $(tail -n 1 "$log")"
}

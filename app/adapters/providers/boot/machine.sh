
# --- what both clouds share; `main` is the last line -------------------------------------------
# Stages: none (boot), agent, ended, dead-man, power-off. Each unit runs one of them.
root=${LOWTIDE_BOOT_PREFIX:-}
home=$root/opt/lowtide
log=$root/var/log/lowtide-boot.log
agent_log=$root/var/log/lowtide-agent.log
scratch=$root/scratch
run=$root/run/lowtide
own_power_off="sh $home/boot.sh power-off"
trainer_uid=10002
python=

say() {
    echo "lowtide: $1" | tee -a "$log"
    # The serial console is what people can read of a machine that they cannot reach.
    if [ -z "$root" ] && [ -w /dev/console ]; then echo "lowtide: $1" > /dev/console; fi
}

fail() {
    say "boot failed: $1"
    report "$1"
    # A machine that cannot work must not cost anything.
    power_off
    exit 1
}

warn() {
    say "warning: $1"
    report "$1" warning
}

# Tells the control plane, by what the image has; $2: it is only a warning.
report() {
    url=$LOWTIDE_CONTROL_URL/agent/v1/boot-failures
    if command -v "${python:=python3}" > /dev/null; then
        "$python" - "$url" "$1" ${2:+"$2"} <<'PY' || say "and the control plane could not be told"
import json, os, socket, sys, urllib.request
told = {"launch_token": os.environ["LOWTIDE_LAUNCH_TOKEN"], "message": sys.argv[2][:1000],
        "machine": socket.gethostname()}
if len(sys.argv) > 3:
    told["warning"] = True
request = urllib.request.Request(sys.argv[1], json.dumps(told).encode(),
                                 {"Content-Type": "application/json"})
try:
    urllib.request.urlopen(request, timeout=15).close()
except OSError as error:
    sys.exit(1)
PY
    else
        message=$(printf %s "$1" | tr -d '"\\' | tr '\n\t' '  ')
        token=$LOWTIDE_LAUNCH_TOKEN
        curl -fsS -m 15 -o /dev/null -H 'Content-Type: application/json' "$url" -d \
            "{\"launch_token\":\"$token\",\"message\":\"$message\"${2:+,\"warning\":true}}" \
            2>/dev/null || say "and the control plane could not be told"
    fi
}

has_systemd() { [ -d "$root/run/systemd/system" ]; }

power_off() {
    case ${LOWTIDE_POWEROFF_COMMAND:-} in
        '' | "$own_power_off") if [ -z "$root" ]; then systemctl poweroff || poweroff; fi ;;
        *) sh -c "$LOWTIDE_POWEROFF_COMMAND" ;;
    esac
}

# Powers off at the second of /proc/uptime that is in the agent's file, whatever the agent does;
# until there is one, half an hour after the boot began.
dead_man() {
    until=
    while :; do
        if [ -r "$home/machine-dir" ]; then . "$home/machine-dir"; fi
        for file in "$home/power-off-at" "${LOWTIDE_MACHINE_DIR:-}/agent/power-off-at"; do
            at=
            # A line that lacks its end is torn: the one before holds.
            if [ -r "$file" ]; then read -r at < "$file" || at=; fi
            case $at in '' | *[!0-9.]*) ;; *) until=${at%%.*} ;; esac
        done
        now=$(uptime_seconds)
        if [ "$now" -ge "${until:-$((now + 1))}" ]; then
            say "nobody has renewed this machine's time: powering off"
            power_off
            if [ -n "$root" ]; then exit 0; fi
        fi
        sleep "${LOWTIDE_BOOT_LOOK_SECONDS:-5}"
    done
}

uptime_seconds() {
    read -r seconds rest < /proc/uptime
    echo "${seconds%%.*}"
}

# NVIDIA's display and 3D controllers on the bus, whether or not a driver knows them.
count_gpus() {
    count=0
    for device in "$root"/sys/bus/pci/devices/*; do
        if [ ! -r "$device/class" ]; then continue; fi
        read -r vendor < "$device/vendor"
        read -r class < "$device/class"
        case $vendor$class in 0x10de0x0300* | 0x10de0x0302*) count=$((count + 1)) ;; esac
    done
    echo $count
}

check_gpus() {
    wanted=${LOWTIDE_GPU_COUNT:=$(count_gpus)}
    export LOWTIDE_GPU_COUNT
    if [ "$wanted" -eq 0 ]; then return; fi
    tries=0
    # The driver may still be loading, or be installed by the image's first start.
    while :; do
        found=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
        if [ "$found" -ge "$wanted" ]; then return; fi
        tries=$((tries + 1))
        if [ $tries -ge "${LOWTIDE_BOOT_GPU_TRIES:-90}" ]; then break; fi
        sleep 2
    done
    fail "only $found of $wanted GPUs answer nvidia-smi: use an image with the NVIDIA driver (CUDA)"
}

# The trainer runs as a user that sees neither the credential nor the metadata service.
make_trainer_user() {
    if [ -n "$root" ] || [ "$(id -u)" -ne 0 ]; then return; fi
    id lowtide-trainer > /dev/null 2>&1 ||
        useradd -M -u $trainer_uid -d "$LOWTIDE_MACHINE_DIR/workdir" -s /bin/sh lowtide-trainer ||
        fail "the trainer's user cannot be made: the image has no useradd"
    LOWTIDE_TRAINER_USER=lowtide-trainer
    export LOWTIDE_TRAINER_USER
}

# All TCP but DNS, for Google's DNS server has the same address; DNS by UDP is not touched. The IPv6
# addresses, EC2's and Google's, count where there is a way to them. The rules are gone after a restart
# of the machine, and are made once for each.
block_metadata() {
    if [ -n "$root" ] || [ "${LOWTIDE_TRAINER_METADATA:-deny}" = allow ]; then return; fi
    reject="-p tcp ! --dport 53 -m owner --uid-owner $trainer_uid -j REJECT"
    iptables -w -C OUTPUT -d 169.254.169.254 $reject 2> /dev/null ||
        iptables -w -I OUTPUT -d 169.254.169.254 $reject ||
        fail "metadata access of the trainer cannot be blocked: the image has no iptables"
    for address in fd00:ec2::254 fd20:ce::254; do
        ip6tables -w -C OUTPUT -d $address $reject 2> /dev/null && continue
        ip6tables -w -I OUTPUT -d $address $reject >> "$log" 2>&1 && continue
        if ip -6 route get $address > /dev/null 2>&1; then
            fail "metadata access of the trainer by IPv6 cannot be blocked: see $log"
        fi
    done
}

# Prints the path of the checked wheel, or what went wrong.
download_wheel() {
    "$python" - "$LOWTIDE_CONTROL_URL/agent/v1/wheel" "$home" \
        "${LOWTIDE_WHEEL_SHA256:-}" "${LOWTIDE_BOOT_WAIT_SECONDS:-300}" <<'PY'
import hashlib, os, re, sys, time, urllib.error, urllib.request
url, home, wanted, wait = sys.argv[1:]
until = time.monotonic() + float(wait)
def end(text):
    print(text)
    sys.exit(1)
while True:
    try:
        with urllib.request.urlopen(f"{url}?sha256={wanted}", timeout=20) as answer:
            body, told = answer.read(64 << 20), answer.headers
        break
    except urllib.error.HTTPError as error:
        problem = f"it answers {error.code}"
        if 400 <= error.code < 500 and error.code != 429:
            end(f"the control plane at {url} has no agent for this machine: {problem}")
    except OSError as error:
        problem = getattr(error, "reason", error)
    if time.monotonic() >= until:
        end(f"the control plane cannot be reached at {url} within {wait} s: {problem}")
    time.sleep(2)
wanted, found = wanted or told.get("Lowtide-Sha256", ""), hashlib.sha256(body).hexdigest()
if found != wanted:
    end(f"the agent from {url} has the SHA-256 {found}, not {wanted or 'one that was stated'}")
name = told.get("Lowtide-Filename", "")
if not re.fullmatch(r"[A-Za-z0-9_.+-]+\.whl", name):
    end(f"the control plane at {url} does not name the agent's file")
path = os.path.join(home, name)
with open(path, "wb") as file:
    file.write(body)
print(path)
PY
}

install_agent() {
    wheel=$(download_wheel) || fail "$wheel"
    if ! "$python" -c 'import pip' 2> /dev/null; then
        told=$(fetch_pip 2>&1) || fail "${told:-no pip came in time from the package index}"
    fi
    venv=$1
    make_venv "$venv"
    install_torch "$venv"
    pip_install "$venv" "$wheel${LOWTIDE_AGENT_EXTRAS:+[$LOWTIDE_AGENT_EXTRAS]}" ||
        fail "the agent cannot be installed: $(tail -n 1 "$log")"
    PATH=$venv/bin:$(dirname "$python"):$PATH
    export PATH
    say "installed $(basename "$wheel")"
}

find_address() {
    : "${LOWTIDE_INTERFACE:=$(ip -o -4 route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p;q')}"
    : "${LOWTIDE_PRIVATE_ADDRESS:=$(ip -o -4 addr show dev "$LOWTIDE_INTERFACE" |
        sed -n 's/.* inet \([0-9.]*\).*/\1/p;q')}"
    [ -n "$LOWTIDE_PRIVATE_ADDRESS" ] || fail "this machine has no private IPv4 address"
    export LOWTIDE_INTERFACE LOWTIDE_PRIVATE_ADDRESS
}

unit() {
    mkdir -p "$root/etc/systemd/system"
    cat > "$root/etc/systemd/system/$1.service"
    systemctl daemon-reload
    systemctl enable -q "$1"
    systemctl restart --no-block "$1"
}

# What jobs with an image need; the agent pulls and runs it.
check_docker() {
    command -v docker > /dev/null ||
        fail "the job names an image, but this machine has no docker: use a machine image with it"
    tries=0
    # It may still be starting.
    until timeout 20 docker info > "$home/docker" 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt "${LOWTIDE_BOOT_GPU_TRIES:-30}" ] ||
            fail "docker does not answer on this machine: $(tail -n 1 "$home/docker")"
        sleep 2
    done
    if [ "${LOWTIDE_GPU_COUNT:-0}" -eq 0 ]; then return; fi
    command -v nvidia-container-runtime-hook > /dev/null ||
        command -v nvidia-container-runtime > /dev/null || grep -qi nvidia "$home/docker" ||
        fail "docker cannot hand GPUs to containers: use an image with nvidia-container-toolkit"
}

# Without a container, /dev/shm is the machine's own; it is the job's alone.
resize_shm() {
    if [ -z "${LOWTIDE_SHM_MB:-}" ]; then return; fi
    mount -o "remount,size=${LOWTIDE_SHM_MB}m" "$root/dev/shm" >> "$log" 2>&1 ||
        fail "/dev/shm cannot be made ${LOWTIDE_SHM_MB} MB large: $(tail -n 1 "$log")"
}

run_agent() {
    : "${LOWTIDE_POWEROFF_COMMAND:=$own_power_off}" "${LOWTIDE_PATHS_ROOT:=${root:-/}}"
    export LOWTIDE_POWEROFF_COMMAND LOWTIDE_MACHINE_DIR LOWTIDE_PATHS_ROOT
    find_address
    make_trainer_user
    count=$(failures) pause=${LOWTIDE_BOOT_PAUSE_SECONDS:-2}
    if [ "$count" -gt 0 ]; then sleep $((pause << (count < 5 ? count : 5))); fi
    mkdir -p "$run"
    uptime_seconds > "$run/agent-started"
    export LOWTIDE_AGENT_FAILURES="$count"
    exec "$1/bin/python" -m trainer.agent.main 2>> "$agent_log"
}

# How often in a row the agent has failed: in memory, for the disk may be full.
failures() {
    count=
    if [ -r "$run/agent-failures" ]; then read -r count < "$run/agent-failures" || :; fi
    case $count in '' | *[!0-9]*) count=0 ;; esac
    echo "$count"
}

# The agent has ended: 0 it was told to leave, 77 it was refused, 78 its settings are wrong; whatever
# else is a failure, and it is started again. The sixth time in a row it only says so, and leaves.
ended() {
    case $1 in
        0 | TERM) say "the agent ended with $1"; return ;;
        77 | 78) fail "the agent ended: $(tail -n 1 "$agent_log")" ;;
    esac
    count=$(failures) began=0
    if [ -r "$run/agent-started" ]; then read -r began < "$run/agent-started" || :; fi
    if [ $(($(uptime_seconds) - ${began:-0})) -gt 600 ]; then count=0; fi
    count=$((count + 1))
    mkdir -p "$run"
    echo $count > "$run/agent-failures"
    say "the agent failed with $1, $count in a row"
    if [ $count -gt 6 ]; then
        fail "the agent failed $count times in a row: $(tail -n 1 "$agent_log")"
    fi
}

start_units() {
    unit lowtide-agent <<END
[Unit]
Description=Lowtide agent
StartLimitIntervalSec=0
After=network-online.target
Wants=network-online.target
RequiresMountsFor=$LOWTIDE_MACHINE_DIR
[Service]
ExecStart=/bin/sh $home/boot.sh agent
ExecStopPost=/bin/sh $home/boot.sh ended \$EXIT_STATUS
Restart=on-failure
RestartPreventExitStatus=77 78
RestartSec=2
KillMode=mixed
TimeoutStopSec=150
OOMScoreAdjust=-900
LimitMEMLOCK=infinity
[Install]
WantedBy=multi-user.target
END
}

boot() {
    umask 022
    mkdir -p "$home" "$root/var/log" "$root/var/lib/lowtide"
    (umask 077 && cat "$0" > "$home/boot.sh.new" && mv "$home/boot.sh.new" "$home/boot.sh")
    # Google runs this at every start of the machine.
    if has_systemd && [ -e "$home/installed" ]; then exit 0; fi
    echo $(($(uptime_seconds) + 1800)) > "$home/power-off-at"
    if has_systemd; then
        unit lowtide-dead-man <<END
[Unit]
Description=Powers this machine off when nobody renews its time
[Service]
ExecStart=/bin/sh $home/boot.sh dead-man
Restart=always
OOMScoreAdjust=-1000
[Install]
WantedBy=multi-user.target
END
    fi
    mount_scratch
    : "${LOWTIDE_MACHINE_DIR:=$root/var/lib/lowtide}"
    export LOWTIDE_MACHINE_DIR
    mkdir -p "$LOWTIDE_MACHINE_DIR"
    mkdir -p -m 700 "$LOWTIDE_MACHINE_DIR/agent"
    echo "LOWTIDE_MACHINE_DIR='$LOWTIDE_MACHINE_DIR'" > "$home/machine-dir"
    find_python
    check_gpus
    if [ -n "${LOWTIDE_CONTAINERS:-}" ]; then check_docker; fi
    resize_shm
    install_agent "$home/venv"
    make_trainer_user
    # By the user's number, which is the same inside containers.
    block_metadata
    if has_systemd; then
        start_units
        : > "$home/installed"
        say "the agent starts"
        exit 0
    fi
    stopped=
    while :; do
        /bin/sh "$home/boot.sh" agent &
        child=$!
        trap 'stopped=1; kill -TERM $child' TERM INT
        wait $child
        code=$?
        while kill -0 $child 2> /dev/null; do wait $child; code=$?; done
        ended $code
        if [ $code -eq 0 ] || [ -n "$stopped" ]; then exit $code; fi
    done
}

main() {
    # Neither cloud-init nor systemd sets it.
    : "${HOME:=/root}"
    export HOME
    if [ -r "$home/machine-dir" ]; then . "$home/machine-dir"; fi
    case ${1:-} in
        '') boot ;;
        agent)
            : "${LOWTIDE_GPU_COUNT:=$(count_gpus)}"
            export LOWTIDE_GPU_COUNT
            resize_shm
            find_python
            block_metadata
            PATH=$home/venv/bin:$(dirname "$python"):$PATH
            export PATH
            run_agent "$home/venv"
            ;;
        ended) ended "${2:-}" ;;
        dead-man) dead_man ;;
        power-off) power_off ;;
    esac
}

main "$@"

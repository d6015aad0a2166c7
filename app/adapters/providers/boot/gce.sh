: "${LOWTIDE_CLOUD:=gce}"
export LOWTIDE_CLOUD

# Local SSDs; an attached persistent disk has a name of its own.
local_disks() {
    for disk in "$1"/google-local-nvme-ssd-* "$1"/google-local-ssd-*; do
        case $disk in *-part*) continue ;; esac
        if [ -e "$disk" ]; then echo "$disk"; fi
    done
}

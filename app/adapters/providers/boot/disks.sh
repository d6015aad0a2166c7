# The machine's local disks, as the folder /scratch.

# Local disks as one file system; the agent's folder is there when there are any. Without them,
# and where they cannot be used, files lie on the root disk: slower, but no reason to give up.
mount_scratch() {
    set --
    for disk in $(local_disks "$root/dev/disk/by-id"); do set -- "$@" "$disk"; done
    mkdir -p "$scratch"
    if [ $# -eq 0 ]; then return; fi
    problem=
    if use_disks "$@" >> "$log" 2>&1; then
        : "${LOWTIDE_MACHINE_DIR:=$scratch/lowtide}"
        say "$# local disk(s) at $scratch"
        if [ -n "$problem" ]; then warn "$problem"; fi
    else
        warn "$problem: files lie on the root disk, which is slower and may be too small"
    fi
}

# Prefers what the image itself makes of the disks. Where that fails, $problem says why.
use_disks() {
    # Amazon's images make one LVM volume of them at every start, and mount it.
    service=dlami-nvme.service
    if has_systemd && systemctl is-enabled -q $service; then
        # One that is still at it would work against what follows.
        timeout "${LOWTIDE_BOOT_DISK_SECONDS:-120}" systemctl start $service ||
            timeout 60 systemctl stop $service
    else
        service=
    fi
    made=$(lsblk -nrpo MOUNTPOINT "$@" | grep -m 1 '^/')
    if [ -n "$made" ]; then
        problem="the local disks at $made cannot be mounted at $scratch"
        mkdir -p "$made/lowtide" && mount --bind "$made/lowtide" "$scratch" || return 1
        keep_mount "$made/lowtide /scratch none bind,nofail${service:+,x-systemd.requires=$service}"
    else
        make_file_system "$@" || return 1
    fi
    problem=${unused:-}
}

make_file_system() {
    device=$1
    if [ "$(blkid -o value -s TYPE "$1")" = LVM2_member ]; then
        problem="the $# local disk(s) belong to an LVM group without a volume"
        vgchange -aay
        device=$(lsblk -nrpo NAME,TYPE "$@" | sed -n 's/ lvm$//p' | head -n 1)
        [ -n "$device" ] || return 1
    elif [ $# -gt 1 ] && command -v mdadm; then
        device=$root/dev/md0 problem="the $# local disks cannot be made one"
        mdadm --create "$device" --run --force --level=0 --raid-devices=$# "$@" ||
            mdadm --assemble "$device" "$@" || return 1
    elif [ $# -gt 1 ]; then
        unused="mdadm is missing: of $# local disks only the first is used"
    fi
    # A reboot must not lose what is there.
    problem="the local disk $device cannot be formatted"
    blkid "$device" || mkfs.ext4 -q -F -m 0 -L lowtide-scratch -E nodiscard "$device" || return 1
    problem="the local disk $device cannot be mounted"
    mount -o noatime "$device" "$scratch" || return 1
    # Not by the device, whose name may be another after a reboot.
    keep_mount "UUID=$(blkid -o value -s UUID "$device") /scratch auto noatime,nofail"
}

keep_mount() {
    if [ -z "$root" ]; then grep -q ' /scratch ' /etc/fstab || echo "$1 0 0" >> /etc/fstab; fi
}

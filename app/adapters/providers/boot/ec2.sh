: "${LOWTIDE_CLOUD:=ec2}"
export LOWTIDE_CLOUD

# Instance-store disks, one path each: the links with a namespace and those of partitions repeat.
local_disks() {
    for disk in "$1"/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
        case $disk in *_1 | *-ns-1 | *-part*) continue ;; esac
        if [ -e "$disk" ]; then echo "$disk"; fi
    done
}

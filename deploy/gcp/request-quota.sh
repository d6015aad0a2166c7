#!/bin/sh
# Asks Google for quota of one kind of GPU in a region, and of GPUs in all regions together, with
# gcloud and whoever it is signed in as. Never asks for less than there is: that would lower it.
#   deploy/gcp/request-quota.sh acme-training us-central1 L4 4 ops@example.com
set -eu

usage() {
    echo "usage: deploy/gcp/request-quota.sh PROJECT REGION GPU COUNT EMAIL [spot|on-demand]" >&2
    echo "  GPU: T4, V100, L4, A100, A100-80GB, H100, H200, B200 or RTX-PRO-6000" >&2
    echo "  COUNT: GPUs that are to run at a time; EMAIL: whom Google may ask about it" >&2
    exit 2
}

if [ $# -lt 5 ] || [ $# -gt 6 ]; then usage; fi
project=$1 region=$2 gpu=$3 count=$4 email=$5 market=${6:-spot}
case $region in "" | *[!a-z0-9-]*) usage ;; esac
case $count in "" | 0* | *[!0-9]*) usage ;; esac
case $email in *@*.*) ;; *) usage ;; esac
# Newer GPUs have one on-demand quota, told apart by a dimension. The names are as Cloud Quotas
# lists them for compute.googleapis.com: gcloud beta quotas info list.
family=
case $market-$gpu in
    spot-T4 | spot-V100 | spot-L4 | spot-A100 | spot-A100-80GB | spot-H100 | spot-H200 | \
        spot-B200 | spot-RTX-PRO-6000)
        quota=PREEMPTIBLE-NVIDIA-$gpu-GPUS-per-project-region
        ;;
    on-demand-T4 | on-demand-V100 | on-demand-L4 | on-demand-A100 | on-demand-A100-80GB)
        quota=NVIDIA-$gpu-GPUS-per-project-region
        ;;
    on-demand-H100 | on-demand-H200 | on-demand-B200 | on-demand-RTX-PRO-6000)
        quota=GPUS-PER-GPU-FAMILY-per-project-region
        family=NVIDIA_$(echo "$gpu" | tr - _)
        ;;
    *) usage ;;
esac

# What there is: the row of the region (and family), else the one that speaks of all others.
value_of() { # QUOTA REGION FAMILY
    rows=$(gcloud beta quotas info describe "$1" --service=compute.googleapis.com \
        --project="$project" --flatten="dimensionsInfos[]" \
        --format="csv[no-heading](dimensionsInfos.dimensions.region,dimensionsInfos.dimensions.gpu_family,dimensionsInfos.details.value)") || return 1
    echo "$rows" | awk -F, -v region="$2" -v family="$3" '
        $1 == region && $2 == family { own = $3; found = 1 }
        $1 == "" && ($2 == "" || $2 == family) && !found { other = $3 }
        END { print int(found ? own : other) }'
}

ask() { # QUOTA ID REGION FAMILY
    if ! has=$(value_of "$1" "$3" "$4"); then
        echo "$project has no quota $1 to be seen; gcloud beta quotas info list shows all" >&2
        exit 1
    fi
    echo "$1${3:+ in $3}: $has"
    # -1 is no limit.
    if [ "$has" -eq -1 ] || [ "$has" -ge "$count" ]; then
        echo "enough; nothing is asked for"
        return
    fi
    set -- "$1" "$2" "${3:+region=$3}${4:+,gpu_family=$4}"
    gcloud beta quotas preferences update "$2" --allow-missing --service=compute.googleapis.com \
        --project="$project" --quota-id="$1" --preferred-value="$count" \
        ${3:+--dimensions="$3"} --email="$email" --justification="GPU training on Spot VMs" \
        --format="value(name)"
    echo "asked for $count"
}

name=$(echo "$market-$gpu-$region" | tr '[:upper:]' '[:lower:]')
ask "$quota" "lowtide-$name" "$region" "$family"
ask GPUS-ALL-REGIONS-per-project lowtide-gpus-all-regions "" ""
echo "Google answers within minutes or days; lowtide doctor shows the quota once it is there"

#!/bin/sh
# Asks AWS for the vCPUs that GPU machines need, with the aws CLI and whatever it signs in with. The
# codes of quotas are looked up by their names. Asked twice it says what is pending.
#   deploy/aws/request-quota.sh us-east-1 G 16
#   deploy/aws/request-quota.sh us-east-1 P5 192 on-demand
set -eu

usage() {
    echo "usage: deploy/aws/request-quota.sh REGION FAMILY VCPUS [spot|on-demand]" >&2
    echo "  FAMILY: G (g4dn, g5, g6, g6e, ...), P3 (p3, p4), P5 or P6" >&2
    echo "  VCPUS: of all machines that are to run at a time; a g6.xlarge has 4, a p5.48xlarge 192" >&2
    exit 2
}

if [ $# -lt 3 ] || [ $# -gt 4 ]; then usage; fi
region=$1 family=$2 vcpus=$3 market=${4:-spot}
case $region in "" | *[!a-z0-9-]*) usage ;; esac
case $vcpus in "" | 0* | *[!0-9]*) usage ;; esac
case $market-$family in
    spot-G) name="All G and VT Spot Instance Requests" ;;
    spot-P3 | spot-P4) name="All P4, P3 and P2 Spot Instance Requests" ;;
    spot-P5) name="All P5 Spot Instance Requests" ;;
    spot-P6) name="All P6 Spot Instance Requests" ;;
    on-demand-G) name="Running On-Demand G and VT instances" ;;
    on-demand-P[3456]) name="Running On-Demand P instances" ;;
    *) usage ;;
esac

quotas() {
    aws service-quotas "$@" --service-code ec2 --region "$region" --output text
}

# A quota that never was raised may be listed among the defaults alone.
find_quota() {
    for list in list-service-quotas list-aws-default-service-quotas; do
        quotas "$list" --query "Quotas[?QuotaName=='$name'].[QuotaCode,Value]" | grep . && return
    done
    return 1
}

if ! found=$(find_quota); then
    echo "$region has no quota \"$name\"; see Service Quotas, Amazon EC2, in the console" >&2
    exit 1
fi
code=$(echo "$found" | awk 'NR == 1 { print $1 }')
has=$(echo "$found" | awk 'NR == 1 { print int($2) }')
echo "$name ($code) in $region: $has vCPUs"
if [ "$has" -ge "$vcpus" ]; then
    echo "enough; nothing is asked for"
    exit 0
fi

pending=$(quotas list-requested-service-quota-change-history-by-quota --quota-code "$code" \
    --query "RequestedQuotas[?Status=='PENDING'||Status=='CASE_OPENED'].[Id,DesiredValue,Status]")
if [ -n "$pending" ]; then
    echo "asked for already: $pending"
    exit 0
fi

told=$(quotas request-service-quota-increase --quota-code "$code" --desired-value "$vcpus" \
    --query "RequestedQuota.[Id,Status]")
echo "asked for $vcpus vCPUs: $told"
echo "AWS answers within hours or days; lowtide doctor shows the quota once it is there"

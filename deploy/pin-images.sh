#!/bin/sh
# Names the images of docker-compose.yml and the Dockerfile by digest as well as by tag, as their
# registry has them now: deploy/pin-images.sh. Run it again to follow a tag that has moved. Nothing is
# changed unless every image is found. Needs curl. REGISTRY=https://mirror.example asks that mirror
# for all of them, under their usual names.
set -eu
cd "$(dirname "$0")/.."

accept="application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
accept="$accept, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The answer's head in $work/head, its status on stdout. $1: address; $2: a token, or nothing.
ask() {
    curl --silent --show-error --max-time 30 --head --header "Accept: $accept" \
        ${2:+--header "Authorization: Bearer $2"} --output "$work/head" --write-out '%{http_code}' "$1"
}

# A word of the head's WWW-Authenticate, as in Bearer realm="…",service="…",scope="…".
challenge() {
    sed -n 's/^[Ww][Ww][Ww]-[Aa]uthenticate: Bearer .*'"$1"'="\([^"]*\)".*/\1/p' "$work/head"
}

# The digest of an image, as postgres:18.1 or ghcr.io/owner/name:1, on stdout.
digest_of() {
    name=${1%:*} tag=${1##*:}
    case $name in
        *.*/* | *:*/* | localhost/*) host=${name%%/*} path=${name#*/} ;;
        */*) host=registry-1.docker.io path=$name ;;
        *) host=registry-1.docker.io path=library/$name ;;
    esac
    address=${REGISTRY:-https://$host}/v2/$path/manifests/$tag
    status=$(ask "$address")
    if [ "$status" = 401 ]; then
        realm=$(challenge realm)
        token=$(curl --silent --show-error --fail --max-time 30 --get "$realm" \
            --data-urlencode "service=$(challenge service)" \
            --data-urlencode "scope=repository:$path:pull" |
            sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
        status=$(ask "$address" "$token")
    fi
    [ "$status" = 200 ] || { echo "$1: the registry answers $status at $address" >&2; return 1; }
    found=$(tr -d '\r' <"$work/head" |
        sed -n 's/^[Dd]ocker-[Cc]ontent-[Dd]igest: *\(sha256:[0-9a-f]*\)$/\1/p')
    [ ${#found} -eq 71 ] || { echo "$1: the registry names no digest at $address" >&2; return 1; }
    echo "$found"
}

images=$(sed -n -e 's/^ *image: \${[A-Z_]*:-\([^}@]*\).*}.*/\1/p' -e 's/^ARG BASE_IMAGE=\([^@]*\).*/\1/p' \
    docker-compose.yml Dockerfile | grep -v '^lowtide:' | sort -u)
for image in $images; do
    digest=$(digest_of "$image")
    # printf, because some shells' echo reads backslashes.
    printf '%s\n' "s|$image\(@sha256:[0-9a-f]*\)\{0,1\}}|$image@$digest}|" \
        "s|^ARG BASE_IMAGE=$image\(@sha256:[0-9a-f]*\)\{0,1\}\$|ARG BASE_IMAGE=$image@$digest|" \
        >>"$work/edit"
    echo "$image@$digest"
done
for file in docker-compose.yml Dockerfile; do
    sed -f "$work/edit" "$file" >"$work/file"
    cat "$work/file" >"$file"
done

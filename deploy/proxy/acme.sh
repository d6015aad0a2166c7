#!/bin/sh
# Gets the proxy's certificate from an ACME authority and renews it a month before its end: the
# container `acme` of docker-compose.yml, until it is ended. The authority asks back on port 80.
# The proxy reads the files at every handshake, so nothing has to be told of a new certificate.
set -eu
umask 077

: "${ACME_DOMAIN:?set ACME_DOMAIN in .env to the name in DNS that points to this host}"
: "${ACME_EMAIL:?set ACME_EMAIL in .env to an address that the authority may write to}"
certs=${ACME_CERTS:-/etc/lowtide/certs}
made=$certs/acme/certificates/$ACME_DOMAIN

ask() {
    "${ACME_LEGO:-/lego}" --accept-tos --path "$certs/acme" --email "$ACME_EMAIL" \
        --server "${ACME_SERVER:-https://acme-v02.api.letsencrypt.org/directory}" \
        --domains "$ACME_DOMAIN" --http --http.port "${ACME_LISTEN:-:8080}" "$@"
}

# Each file is whole at any moment; a handshake between the two fails, and the client comes again.
# `set -e` is off in a function whose answer is asked for: each step leads to the next by itself.
publish() {
    cmp -s "$made.crt" "$certs/fullchain.pem" && cmp -s "$made.key" "$certs/privkey.pem" && return
    if ! { cp "$made.key" "$certs/.privkey.new" && cp "$made.crt" "$certs/.fullchain.new"; }; then
        rm -f "$certs/.privkey.new" "$certs/.fullchain.new"
        echo "acme: the certificate cannot be copied to $certs; the proxy keeps what it has" >&2
        return 1
    fi
    mv -f "$certs/.privkey.new" "$certs/privkey.pem" &&
        mv -f "$certs/.fullchain.new" "$certs/fullchain.pem" || return 1
    echo "acme: the proxy has a new certificate for $ACME_DOMAIN"
}

trap 'exit 0' INT TERM
while :; do
    if [ -s "$made.crt" ]; then step="renew --days 30"; else step=run; fi
    # Let's Encrypt allows five failures an hour for each name.
    pause=${ACME_RETRY_SECONDS:-1800}
    # shellcheck disable=SC2086
    if ! ask $step; then
        echo "acme: no certificate for $ACME_DOMAIN; does the name point here, is port 80 open?" >&2
        echo "acme: tried again in $pause s" >&2
    elif publish; then
        pause=${ACME_PAUSE_SECONDS:-43200}
    else
        echo "acme: tried again in $pause s" >&2
    fi
    sleep "$pause" &
    wait $!
done

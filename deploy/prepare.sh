#!/bin/sh
# Makes what docker-compose.yml needs and git must never see: .env with fresh passwords, and a
# self-signed certificate for trying it out. With an address for letters the container `acme` puts
# one of Let's Encrypt in its place. What is there already is left as it is.
#   deploy/prepare.sh lowtide.example.com [ops@example.com]
set -eu
umask 077
cd "$(dirname "$0")/.."

usage="usage: deploy/prepare.sh DOMAIN [EMAIL]   (as in: lowtide.example.com ops@example.com)"
domain=${1:-} email=${2:-}
case $domain in
    "" | *[!A-Za-z0-9.-]*)
        echo "$usage" >&2
        exit 2
        ;;
esac
case $email in
    "") ;;
    *[!A-Za-z0-9.@+_-]* | [!A-Za-z0-9]* | *@*@*)
        echo "$usage" >&2
        exit 2
        ;;
    *@*.*) ;;
    *)
        echo "$usage" >&2
        exit 2
        ;;
esac

# Who the proxy runs as: somebody who can read the key, and never root.
user=$(id -u):$(id -g)
[ "$user" = 0:0 ] && user=10002:10002

if [ -e .env ]; then
    echo "kept .env"
    if [ -n "$email" ]; then
        missing=
        for line in COMPOSE_PROFILES=acme "ACME_DOMAIN=$domain" "ACME_EMAIL=$email" \
            "LOWTIDE_PUBLIC_URL=https://$domain"; do
            # Of a name that stands twice, the last line counts.
            [ "$(grep "^${line%%=*}=" .env | tail -n 1)" = "$line" ] || missing="$missing
    $line"
        done
        [ -z "$missing" ] || echo "for a certificate of Let's Encrypt, add to .env by hand:$missing"
    fi
else
    sed -e "s|^PROXY_USER=.*|PROXY_USER=$user|" \
        -e "s|^POSTGRES_PASSWORD=.*|POSTGRES_PASSWORD=$(openssl rand -hex 24)|" \
        -e "s|^VALKEY_PASSWORD=.*|VALKEY_PASSWORD=$(openssl rand -hex 24)|" \
        deploy/env.example >.env.new
    if [ -n "$email" ]; then
        sed -i -e "s|^#COMPOSE_PROFILES=.*|COMPOSE_PROFILES=acme|" \
            -e "s|^#ACME_DOMAIN=.*|ACME_DOMAIN=$domain|" \
            -e "s|^#ACME_EMAIL=.*|ACME_EMAIL=$email|" \
            -e "s|^LOWTIDE_PUBLIC_URL=.*|LOWTIDE_PUBLIC_URL=https://$domain|" .env.new
    fi
    mv .env.new .env
    echo "wrote .env with new passwords; keep a copy with your backups"
fi

if [ -e deploy/certs/privkey.pem ]; then
    echo "kept the certificate in deploy/certs"
else
    mkdir -p deploy/certs
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 \
        -subj "/CN=$domain" -addext "subjectAltName=DNS:$domain" \
        -keyout deploy/certs/privkey.pem -out deploy/certs/fullchain.pem 2>/dev/null
    chmod 0644 deploy/certs/fullchain.pem
    [ "$(id -u)" -ne 0 ] || chown -R "$user" deploy/certs
    echo "wrote a self-signed certificate for $domain, good for 90 days, into deploy/certs"
fi

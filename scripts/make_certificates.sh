#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the certificates by which a daemon and its clients know each other: a CA, one for the daemon, one for each client.
#
# Usage: scripts/make_certificates.sh [--out DIR] [--days N] [--client CLIENT]... NAME...
#
#   NAME            what clients call the daemon's host: a DNS name or an IP address; several for several
#   --client NAME   a certificate for this client, by which the daemon calls it NAME ([a-z0-9][a-z0-9._@-]{0,62})
#   --out DIR       where they go; default: certificates. A CA that is there is used again, other files are replaced
#   --days N        how long the certificates last; default 365. The CA lasts ten years
#
# DIR then holds ca.pem and ca.key (keep the key away from the daemon's host), server.pem and server.key, and
# clients/CLIENT/{ca.pem,cert.pem,key.pem}, which is what a client keeps in ~/.config/meshloom/HOST:PORT.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

out=certificates
days=365
names=()
clients=()
while [ $# -gt 0 ]; do
  case $1 in
    --help) print_help && exit 0 ;;
    --out | --days | --client)
      [ $# -ge 2 ] || usage_error "$1 needs a value"
      case $1 in
        --out) out=$2 ;;
        --days) days=$2 ;;
        --client) clients+=("$2") ;;
      esac
      shift
      ;;
    -*) usage_error "unknown argument $1" ;;
    *) names+=("$1") ;;
  esac
  shift
done
[ "${#names[@]}" -gt 0 ] || [ "${#clients[@]}" -gt 0 ] || usage_error "name the daemon's host, or clients"
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || usage_error "--days is $days, expected 1 to 99999"
for client in "${clients[@]}"; do
  [[ $client =~ ^[a-z0-9][a-z0-9._@-]{0,62}$ ]] ||
    usage_error "--client $client: expected [a-z0-9][a-z0-9._@-]{0,62}"
done
for name in "${names[@]}"; do
  [[ $name =~ ^[A-Za-z0-9.:*_-]+$ ]] || usage_error "$name is neither a DNS name nor an IP address"
done
command -v openssl >/dev/null || die "openssl is missing: apt-get install openssl"

umask 077
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

quietly() {
  "$@" >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    die "openssl failed"
  }
}

new_key() { quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# make_certificate CERTIFICATE KEY SUBJECT ALTERNATIVE_NAMES PURPOSE
make_certificate() {
  local certificate=$1 key=$2 subject=$3 alternatives=$4 purpose=$5
  new_key "$scratch/key"
  quietly openssl req -new -key "$scratch/key" -subj "/CN=$subject" -out "$scratch/request"
  printf '%s\n' "subjectAltName=$alternatives" "extendedKeyUsage=$purpose" "basicConstraints=critical,CA:FALSE" \
    "keyUsage=critical,digitalSignature" >"$scratch/extensions"
  quietly openssl x509 -req -in "$scratch/request" -CA "$out/ca.pem" -CAkey "$out/ca.key" -days "$days" \
    -set_serial "0x$(openssl rand -hex 16)" -extfile "$scratch/extensions" -out "$scratch/certificate"
  mv "$scratch/key" "$key"
  mv "$scratch/certificate" "$certificate"
}

if [ ! -e "$out/ca.key" ]; then
  new_key "$out/ca.key"
  quietly openssl req -x509 -new -key "$out/ca.key" -subj "/CN=Meshloom CA" -days 3650 \
    -addext keyUsage=critical,keyCertSign,cRLSign -out "$out/ca.pem"
  say "made $out/ca.pem, a CA, and its key $out/ca.key"
fi

if [ "${#names[@]}" -gt 0 ]; then
  alternatives=()
  for name in "${names[@]}"; do
    if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then alternatives+=("IP:$name"); else alternatives+=("DNS:$name"); fi
  done
  list=$(IFS=, && printf '%s' "${alternatives[*]}")
  make_certificate "$out/server.pem" "$out/server.key" "${names[0]:0:63}" "$list" serverAuth
  say "made $out/server.pem and $out/server.key, for ${names[*]}"
fi

for client in "${clients[@]}"; do
  folder=$out/clients/$client
  mkdir -p "$folder"
  # An @ makes no difference to the name: it is a DNS name to OpenSSL, whatever stands in it.
  make_certificate "$folder/cert.pem" "$folder/key.pem" "$client" "DNS:$client" clientAuth
  cp "$out/ca.pem" "$folder/ca.pem"
  say "made $folder, for the client $client"
done

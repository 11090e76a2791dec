#!/bin/sh
# Makes the certificates of tests/it/tls.rs: an authority, a receiver's certificate that outlives everybody, an expired one.
# The key of the authority is thrown away; the receiver's key protects nothing.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

cat > "$work/ca.cnf" <<END
[ca]
default_ca = authority
[authority]
database = $work/index
serial = $work/serial
new_certs_dir = $work
default_md = sha256
policy = any
[any]
commonName = supplied
[receiver]
subjectAltName = DNS:receiver.example
END
: > "$work/index"
echo 01 > "$work/serial"

key "$work/ca.key"
openssl req -x509 -key "$work/ca.key" -subj "/CN=Tidegate test authority" -days 36500 -out ca.pem
key receiver.key
openssl req -new -key receiver.key -subj "/CN=receiver.example" -out "$work/receiver.csr"

sign() {
    openssl ca -batch -notext -config "$work/ca.cnf" -extensions receiver -keyfile "$work/ca.key" -cert ca.pem \
        -in "$work/receiver.csr" -startdate "$1" -enddate "$2" -out "$3" 2>/dev/null
}
sign 20200101000000Z 21200101000000Z receiver.pem
: > "$work/index"
sign 20200101000000Z 20210101000000Z expired.pem

#!/bin/sh
# Write the secrets that compose.yaml mounts into deploy/secrets, each once; those that are there stay.
# Usage: sh deploy/make-secrets.sh [folder] [host and port of Postgres]
set -eu
folder=${1:-$(dirname "$0")/secrets}
server=${2:-postgres:5432}

umask 077
mkdir -p "$folder"
# Docker mounts the files with their mode and account: the folder keeps others of this machine out, and the container's account
# must be able to read them.
chmod 700 "$folder"
secret() {
    [ -s "$folder/$1" ] || printf '%s' "$2" >"$folder/$1.new"
    [ ! -e "$folder/$1.new" ] || mv "$folder/$1.new" "$folder/$1"
    chmod 444 "$folder/$1"
}
random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

for role in postgres owner writer; do
    secret "${role}_password" "$(random)"
done
secret owner_url "postgresql://modyn_owner:$(cat "$folder/owner_password")@$server"
secret writer_url "postgresql://modyn_writer:$(cat "$folder/writer_password")@$server"
secret ui_token "$(random)"
secret ray_token "$(random)"
echo "secrets are in $folder; the password of the pages is in $folder/ui_token"

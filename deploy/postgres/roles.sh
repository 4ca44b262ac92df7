#!/bin/sh
# Make the owner of the schemas and the writer of rows when Postgres makes its data folder; neither is a superuser.
# Their passwords are in files, and reach the server by psql's variables: no command line and no log shows them.
set -eu
secrets=${SECRETS:-/run/secrets}

psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-postgres}" <<SQL
\set owner \`cat "$secrets/owner_password"\`
\set writer \`cat "$secrets/writer_password"\`
set log_statement = none;
set log_min_error_statement = panic;
create role modyn_owner login createdb password :'owner';
create role modyn_writer login password :'writer';
SQL

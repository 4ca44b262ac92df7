#!/bin/sh
# Make the owner of the schemas, the writer of rows and the role of users' statements when Postgres makes its data folder; none is a
# superuser.
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
create role modyn_statement nologin;
grant modyn_statement to modyn_writer;
SQL

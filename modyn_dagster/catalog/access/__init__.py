"""Access to a Postgres server: authentication that gives no password away, and roles with no more rights than they need."""

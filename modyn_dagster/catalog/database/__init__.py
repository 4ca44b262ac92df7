"""The database: addresses, connections, transactions, and the three databases on one server."""

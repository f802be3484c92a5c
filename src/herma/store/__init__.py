"""Adapters: the ports of the core on files, on SQLite, and later on PostgreSQL."""

"""The engine, its sessions and connections, and what differs between SQLite and PostgreSQL."""

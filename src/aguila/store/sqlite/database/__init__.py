"""The SQLite file: its schema, connections, threads and write-ahead log, and wake-ups between its processes."""

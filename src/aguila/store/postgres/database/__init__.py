"""The PostgreSQL database: its schema, connections and lanes of writes, and wake-ups between processes."""

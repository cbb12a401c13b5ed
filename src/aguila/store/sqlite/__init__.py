"""The event log in one SQLite file.

``store`` is the API and ``engine`` its open state. ``writer`` writes, ``readers`` read, ``checkpoint`` maintains the
write-ahead log. ``queries``, ``run_writes`` and ``thread_writes`` hold the SQL, ``migrations`` the schema. ``wakeup``
notifies other processes; ``locks`` detects dead ones.
"""

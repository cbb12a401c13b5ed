"""SQLite: files that several processes share, and memory.

``engine`` is an open file: ``connection``, ``checkpoint``, ``wakeup`` of other processes and ``locks`` of owners.
``tx`` is what it gives to ``aguila.store.sql``. ``legacy`` reads files of before this schema.
"""

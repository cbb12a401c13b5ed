"""The event log in a PostgreSQL database, which many machines may share.

``store`` is the API and ``engine`` its open state. ``database`` has the connections, the lanes that group writes, the
schema and the wake-ups of other processes. ``appends`` and ``begins`` are the two groups of writes that matter. The
rest of the SQL is in ``queries``, ``thread_writes``, ``files``, ``inputs``, ``projections`` and ``archives``.
"""

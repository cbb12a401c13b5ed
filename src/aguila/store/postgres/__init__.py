"""The event log in a PostgreSQL database, which many machines may share.

``store`` is the API and ``engine`` its open state. ``database`` holds the connections, ``lanes`` group writes,
``appends`` and ``begins`` are the two groups that matter. The SQL is in ``schema`` (tables and functions), ``queries``,
``thread_writes``, ``files``, ``inputs`` and ``archives``; ``migrations`` applies the schema. ``wakeups`` notifies other
processes.
"""

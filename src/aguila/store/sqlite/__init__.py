"""The event log in one SQLite file.

``store`` is the API and ``engine`` its open state. ``queries``, ``run_writes`` and ``thread_writes`` hold the SQL;
``inputs``, ``projections`` and ``archives`` read and write values of several rows; ``check`` verifies a file.
``database`` has the file itself: its schema, its connections and the processes that share it.
"""

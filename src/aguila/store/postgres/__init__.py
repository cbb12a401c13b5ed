"""The event log in a PostgreSQL database, which many machines may share.

``engine`` is an open database: ``connection``, ``hosts``, ``schema``, ``liveness`` of owners and ``wakeups`` of other
processes. ``tx`` is what it gives to ``aguila.store.sql``, with pipelines.
"""

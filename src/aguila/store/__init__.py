"""Layer: store. The event log and files behind durable threads.

Below: ``aguila.stream``. Above: ``aguila.agent`` and ``aguila.server``.
"""

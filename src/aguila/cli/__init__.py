"""Layer: cli. The ``aguila`` command. Above: people. Below: everything; nothing imports this.

``main`` is the entry point, ``commands`` has the options, ``serve`` is the command behind ``make run``, ``demo`` the
agent that it serves, ``logs`` what its log lines look like. ``stream_commands`` has the options of ``chat``, ``check``,
``record``, ``replay``, ``compact`` and ``convert``, which have a module each. Needs the ``cli`` extra.
"""

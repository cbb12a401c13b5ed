"""The ``aguila`` command. Needs the ``cli`` extra.

``main`` is the entry point and ``commands`` registers the commands. ``serve_options`` and ``stream_commands`` define
their options; each command is implemented in a module of its own, imported when the command runs.
"""

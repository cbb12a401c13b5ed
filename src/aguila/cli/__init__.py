"""The ``aguila`` command.

``main`` is the entry point and ``commands`` registers the commands. ``options`` defines their options; each command is
implemented in the module of its name. ``output`` formats their output.
"""

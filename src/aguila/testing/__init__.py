"""Layer: testing. What Aguila's own tests use and a user's tests may use too.

May import every other layer; no other layer imports it. Importing this package loads nothing: name the
module you need, such as ``aguila.testing.strategies`` (needs the ``testing`` extra).
"""

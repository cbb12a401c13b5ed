"""``aguila doctor``: checks of this machine, of a store, and of what lies between a client and a server."""

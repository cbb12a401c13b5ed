"""The front ends that need more than the protocol. Each is one object with hooks, see ``http.front_end``."""

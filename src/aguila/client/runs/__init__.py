"""The threads and runs of both clients, without their I/O."""

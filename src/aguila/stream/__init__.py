"""Layer: stream. What a stream of events means, without I/O, clock or randomness."""

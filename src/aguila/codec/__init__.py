"""Layer: codec. Bytes to protocol objects and back, without I/O."""

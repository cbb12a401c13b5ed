"""JSON text to protocol objects and back."""

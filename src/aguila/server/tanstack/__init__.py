"""What TanStack AI needs besides the protocol."""

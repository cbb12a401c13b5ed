"""What a thread amounts to, and what an agent and a late client see of it."""

"""Find the branches of an agent again in a replay, derive the same ids, and suppress output that was sent before."""

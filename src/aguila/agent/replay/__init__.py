"""Find the branches of an agent again in a replay, derive the same ids, and suppress what was sent before."""

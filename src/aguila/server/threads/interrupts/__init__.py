"""Questions that end a run, and the runs that answer them."""

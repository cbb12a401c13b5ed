"""Send the events of another producer as those of a run: of an iterator, or of another AG-UI endpoint."""

"""What the commands print: transcripts, reports and log lines."""

"""The output of the commands: transcripts, reports and log lines."""

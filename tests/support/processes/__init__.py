"""Run commands, Python programs and Node scripts in processes of their own."""

"""Make requests for a provider: prompt, history, files and schemas."""

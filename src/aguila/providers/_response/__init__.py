"""Read the streamed responses of a provider."""

"""Large files through a server that measures itself."""

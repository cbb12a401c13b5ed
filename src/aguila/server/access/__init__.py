"""Check whether a request may use an app: its credentials, host and origin."""

"""Who may use an app: by credentials, host and origin."""

"""The options of an app, checked when it is made."""

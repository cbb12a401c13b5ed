"""Model servers for tests of providers, and checks of what is sent to them."""

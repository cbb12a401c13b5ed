"""The one implementation of a store in SQL. ``tx`` says what a database supplies; ``store`` is built on it."""

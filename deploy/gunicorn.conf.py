"""gunicorn --config gunicorn.conf.py service:app."""

from typing import Any

bind = "127.0.0.1:8000"
workers = 2
worker_class = "uvicorn_worker.UvicornWorker"  # or "asgi", gunicorn's own
graceful_timeout = 90  # longer than drain


def post_worker_init(worker: Any) -> None:
    """Let a worker that stops leave new connections to the others, where it would refuse new runs."""
    worker.app.wsgi().has_siblings = True

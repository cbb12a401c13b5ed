"""``python -m aguila``: the ``aguila`` command."""

from aguila.cli.main import main

if __name__ == "__main__":
    main()

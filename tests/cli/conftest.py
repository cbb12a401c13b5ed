"""A store with every feature of the demo, for the commands that read stores."""

import pytest
from stores.demo_store import Demo, seen, served, show_features


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    with served(path) as server:
        files = show_features(server)
        return path, seen(server, files), files

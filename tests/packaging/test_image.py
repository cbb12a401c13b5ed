"""The Dockerfile of a new project, built and run as far as that is possible without a container engine."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from image import Image, can_contain
from ports import free_port
from waiting import DEADLINE

from aguila.cli.init import write_project


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="aguila-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_image_of_a_new_project_serves_it_on_a_read_only_file_system(
    packages: Path, root: Path, tmp_path: Path
) -> None:
    if not can_contain():
        pytest.skip("this process may not make namespaces: run the tests as root")
    project = tmp_path / "dice"
    write_project(project)
    shutil.copytree(packages, project / "wheels", copy_function=os.link)
    image = Image(root, project, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_COMPILE="1")
    assert int(image.user) > 0
    port = free_port()
    container = image.start(port, tmp_path, AGUILA_PORT=str(port))
    try:
        message = {"id": "m", "role": "user", "content": "Hello"}
        assert container.events(messages=[message])[-1]["type"] == "RUN_FINISHED"
        status = Path(f"/proc/{container.first}/status").read_text()
        assert f"NSpid:\t{container.first}\t1\n" in status
        assert f"Uid:\t{image.user}\t" in status
        os.kill(container.first, signal.SIGTERM)
        assert container.process.wait(DEADLINE) == 0, container.log
    finally:
        container.stop()
    assert (image.volumes[0] / "aguila.db").is_file()

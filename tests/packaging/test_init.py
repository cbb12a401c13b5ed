"""From the wheel, in an empty directory: ``aguila init``, its tests, ``aguila serve``, the page in Chromium, its image.

All in one test: what it installs is made once for each process of the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_page import ChatPage
from frontends_matrix import CHROMIUM_FLAGS
from image import Image, can_contain
from playwright.sync_api import expect, sync_playwright
from ports import free_port
from processes.commands import Command
from recipes import CHROMIUM, MissingTool, require_tools
from waiting import DEADLINE


@pytest.fixture
def image_root() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="aguila-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def run(*command: str | Path, folder: Path) -> str:
    environment = {**os.environ, "VIRTUAL_ENV": ""}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_project_is_installed_tested_served_and_chats_also_in_its_image(
    installed: Callable[..., Path], packages: Path, tmp_path: Path, image_root: Path
) -> None:
    try:
        require_tools()
    except MissingTool as missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(missing))
    python = installed(tmp_path / "env", "cli")
    project = tmp_path / "dice"
    assert "aguila serve agent --open" in run(python.with_name("aguila"), "init", "dice", folder=tmp_path)
    # The packages are those of the index, downloaded before.
    options = ["-q", "--no-index", "--find-links", packages, "-e", ".[test]"]
    run(python, "-m", "ensurepip", folder=project)
    run(python, "-m", "pip", "install", *options, folder=project)
    assert "3 passed" in run(python.with_name("pytest"), "-q", folder=project)
    port = free_port()
    command = [str(python.with_name("aguila")), "serve", "agent", "--port", str(port)]
    server = Command(command, port, project, "/healthz", {})
    try:
        chat_about_dice(server.url)
    finally:
        server.stop()
    assert (project / "aguila.db").is_file()
    run("git", "-c", "init.defaultBranch=main", "init", "-q", folder=project)
    tracked = run("git", "status", "--short", "--untracked-files=all", folder=project)
    written = {".gitignore", "Dockerfile", "README.md", "agent.py", "pyproject.toml", "test_agent.py"}
    assert {line.split()[1] for line in tracked.splitlines()} - {f"server-{port}.log"} == written

    if not can_contain():
        missing = "the image was not built: that needs unshare, setpriv and the right to make namespaces (root)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    serve_image(project, packages, image_root)


def serve_image(project: Path, packages: Path, root: Path) -> None:
    """Build the image of the project and run it, as far as that is possible without a container engine."""
    shutil.copytree(packages, project / "wheels", copy_function=os.link)
    image = Image(root, project, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_COMPILE="1")
    assert int(image.user) > 0
    port = free_port()
    container = image.start(port, project, AGUILA_PORT=str(port))
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


def chat_about_dice(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        page = browser.new_page()
        console: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", lambda message: console.append(message.text))
        page.goto(url)
        chat = ChatPage(page, url, console)
        chat.ask("Hello")
        chat.sees("Ask me to roll the dice.")
        chat.write("Roll the dice")
        chat.question().get_by_role("button", name="Approve").click()
        expect(chat.messages()).to_contain_text("You rolled", timeout=60_000)
        browser.close()
        assert console == []

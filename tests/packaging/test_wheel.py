"""The wheel, installed with nothing but what it declares, has every base layer in it."""

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

BASE_LAYERS = [
    "aguila",
    "aguila.errors",
    "aguila.protocol",
    "aguila.protocol.legacy",
    "aguila.codec",
    "aguila.codec.sse",
    "aguila.codec.jsonl",
    "aguila.codec.negotiate",
    "aguila.stream",
]


@pytest.fixture(scope="module")
def bare_python(installed: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("bare"))


def test_the_wheel_holds_the_type_marker_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "aguila/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests/") for name in names)


def test_a_bare_install_has_msgspec_and_nothing_else(
    bare_python: Path, packages_of: Callable[[Path], set[str]]
) -> None:
    assert packages_of(bare_python) == {"aguila", "msgspec"}


@pytest.mark.parametrize("layer", BASE_LAYERS)
def test_a_bare_install_imports_the_layer(bare_python: Path, layer: str) -> None:
    done = subprocess.run([bare_python, "-W", "error", "-c", f"import {layer}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_of_a_bare_install_says_which_extra_it_needs(bare_python: Path) -> None:
    done = subprocess.run([bare_python.with_name("aguila"), "serve"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "aguila: this needs typer; install it with: pip install 'aguila[cli]' (in a clone: '.[cli]'),\n"
        "or run it without an install: uvx --from 'aguila[cli]' aguila\n"
    )


def test_a_missing_extra_is_an_error_that_names_it(bare_python: Path) -> None:
    code = "from aguila.codec.protobuf import ProtobufEncoder; ProtobufEncoder()"
    done = subprocess.run([bare_python, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "aguila[protobuf]" in done.stderr

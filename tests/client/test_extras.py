"""A missing extra is named when it is needed, not at import."""

import subprocess
import sys

import pytest
from waiting import DEADLINE

BLOCKED = "import sys\nfor name in {blocked!r}:\n    sys.modules[name] = None\n{code}"


def run_without(blocked: list[str], code: str) -> str:
    program = BLOCKED.format(blocked=blocked, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("blocked", "code", "extra"),
    [
        (["httpx2"], "from aguila import AsyncClient; AsyncClient('http://x')", "client"),
        (["httpx2"], "from aguila import Client; Client('http://x')", "client"),
        (["h2"], "from aguila import Client; Client('http://x', options={'http2': True})", "http2"),
        (["h2"], "from aguila import AsyncClient; AsyncClient('http://x', options={'http2': True})", "http2"),
        (["aiohttp"], "import aguila.client.transports.aiohttp", "aiohttp"),
        (["google", "google.protobuf"], "from aguila import Client; Client('http://x', protobuf=True)", "protobuf"),
        (["jsonschema_rs"], "from aguila.chat.json_schema import problem_with; problem_with(1, {})", "client"),
    ],
)
def test_a_missing_extra_is_an_error_that_names_it(blocked, code, extra):
    found = run_without(blocked, code)
    assert "MissingExtra" in found
    assert f"aguila[{extra}]" in found


def test_the_client_imports_and_works_on_a_recording_with_the_base_install(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n{"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n'
    )
    code = f"""
from aguila import Client
from aguila.client.transports.recorded import RecordedTransport
print(Client("recorded:", transport=RecordedTransport({str(path)!r})).thread().run("x", run_id="r").result().outcome)
"""
    blocked = [
        "httpx2",
        "aiohttp",
        "jsonschema_rs",
        "google",
        "starlette",
        "uvicorn",
        "anyio",
        "uuid_utils",
        "pydantic",
    ]
    assert run_without(blocked, code).strip() == "success"

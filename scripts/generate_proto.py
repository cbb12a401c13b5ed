"""Generate src/aguila/codec/protobuf/_generated from src/aguila/codec/protobuf/agui.proto.

    python scripts/generate_proto.py           write the generated code
    python scripts/generate_proto.py --check   exit 1 if the committed code is not what would be written

Needs grpcio-tools. The check ignores the compiler's version in the generated code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "aguila" / "codec" / "protobuf"
GENERATED = SOURCE / "_generated"
NAMES = ("agui_pb2.py", "agui_pb2.pyi")

# A pool of our own. In the shared pool our messages would clash with those of another package that declares `ag_ui`:
# the package imported second would fail.
SHARED_POOL = "_descriptor_pool.Default()"
OWN_POOL = "_descriptor_pool.DescriptorPool()"

VERSIONS = re.compile(
    r"# Protobuf Python Version: .*|(?<=\(\n    _runtime_version\.Domain\.PUBLIC,\n)(?:    \d+,\n){3}"
)


def generate() -> dict[str, str]:
    """Return the text of each generated file by name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}"]
        outputs = [f"--python_out={folder}", f"--pyi_out={folder}", "agui.proto"]
        subprocess.run([*command, *outputs], check=True)
        texts = {name: Path(folder, name).read_text(encoding="utf-8") for name in NAMES}
    code = texts["agui_pb2.py"]
    if code.count(SHARED_POOL) != 1:
        raise SystemExit(f"the compiler's output has changed: {SHARED_POOL} does not occur exactly once")
    return {**texts, "agui_pb2.py": code.replace(SHARED_POOL, OWN_POOL)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    is_check = parser.parse_args().check
    stale: list[str] = []
    for name, text in generate().items():
        target = GENERATED / name
        if not is_check:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or VERSIONS.sub("", target.read_text(encoding="utf-8")) != VERSIONS.sub("", text):
            stale.append(name)
    if stale:
        print(f"not current: {', '.join(stale)}; run python scripts/generate_proto.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

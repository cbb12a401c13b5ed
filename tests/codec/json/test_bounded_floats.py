"""All JSON of others is decoded by decoders whose time is bounded per byte."""

import re
from pathlib import Path

import msgspec
import pytest

import aguila
from aguila.codec.json.bounded_floats import decode_json

SOURCES = Path(aguila.__file__).parent


def test_floats_keep_their_values_and_their_limits():
    assert decode_json(b"[9e307,5e-324,-1.5,1e0,0.1,1e-400]") == [9e307, 5e-324, -1.5, 1.0, 0.1, 0.0]
    for text in (b"1e309", b"[-1e999]", b'{"a":1e400}'):
        with pytest.raises(msgspec.DecodeError, match="out of range"):
            decode_json(text)


def test_no_other_module_makes_a_json_decoder():
    calls = re.compile(r"msgspec\.json\.(decode\(|Decoder\()")
    found = {path.name for path in SOURCES.rglob("*.py") if calls.search(path.read_text())}
    assert found == {"bounded_floats.py"}

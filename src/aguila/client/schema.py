"""Layer: client. Values against JSON Schemas of other people: tool parameters, interrupt answers (INT-4).

Below: jsonschema-rs (extra ``client``). A schema comes from the other side and is data: nothing it refers to is ever
fetched, and one that is no schema at all says nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn

from aguila.codec.notice import Notice, Warn, log_notice
from aguila.errors import MissingExtra


def problem_with(value: Any, schema: Any, *, warn: Warn = log_notice) -> str | None:
    """What is wrong with a value, in words; None if nothing is, or if the schema cannot be used (reported)."""
    try:
        import jsonschema_rs
    except ModuleNotFoundError as error:
        raise MissingExtra("client", "jsonschema-rs") from error
    try:
        validator = jsonschema_rs.validator_for(schema, retriever=_fetch_nothing)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        warn(Notice(rule="INT-4", message=f"a schema is not usable and checks nothing: {_first_line(error)}"))
        return None
    found = next(iter(validator.iter_errors(value)), None)
    if found is None:
        return None
    where = "".join(f"/{step}" for step in found.instance_path)
    return f"{found.message} at {where!r}" if where else found.message


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"not fetching {uri}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

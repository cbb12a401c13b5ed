"""Check values against JSON Schemas: arguments of tools, answers to interrupts (INT-4), schemas of questions.

A schema of a peer is data: its references are never fetched, and a schema that expands too far is not used.
jsonschema-rs does the work (extras ``client`` and ``server``), and is imported when it is first used.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aguila.chat.schema_expansion import check_expansion
from aguila.codec.json.text import replace_surrogates
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.pointer import escape_token
from aguila.errors import MissingExtra

_MAX_PARTS: Final = 2000
"""Parts of a value whose problem is described: the library collects the errors of all, a second for 70,000."""


class Problem(NamedTuple):
    """Why a value does not match a schema, and where, as a JSON pointer."""

    message: str
    path: str

    def __str__(self) -> str:
        return f"{self.message} at {self.path!r}" if self.path else self.message


def find_problem(value: Any, schema: Any) -> Problem | None:
    """Return the first problem of a value, or None. Of a value with many parts it is not said which does not match.

    Raises ``ValueError`` for a schema that is not usable.
    """
    validator = _validator_for(schema)
    plain = replace_surrogates(value)
    if validator.is_valid(plain):
        return None
    if _has_many_parts(plain):
        return Problem("one of its parts does not match, and there are too many to say which", "")
    found = next(iter(validator.iter_errors(plain)))
    return Problem(found.message, "".join(f"/{escape_token(str(step))}" for step in found.instance_path))


def _has_many_parts(value: Any) -> bool:
    parts = [value]
    for part in parts:  # the loop also visits added parts
        if is_object(part):
            parts += part.values()
        elif is_array(part):
            parts += part
        if len(parts) > _MAX_PARTS:
            return True
    return False


def problem_with(value: Any, schema: Any, *, warn: Warn = log_notice) -> str | None:
    """Describe the first problem of a value. A schema that is not usable checks nothing, with a notice."""
    try:
        problem = find_problem(value, schema)
    except ValueError as error:
        warn(Notice(rule="INT-4", message=f"a schema is not usable and checks nothing: {error}"))
        return None
    return None if problem is None else str(problem)


def check_schema(schema: Any) -> None:
    """Raise ``ValueError`` for a schema that is not usable. Checks nothing if jsonschema-rs is not installed."""
    try:
        _validator_for(schema)
    except MissingExtra:
        return


def _validator_for(schema: Any) -> Any:
    try:
        import jsonschema_rs
    except ModuleNotFoundError:
        raise MissingExtra("client", "jsonschema-rs") from None
    try:
        check_expansion(schema)
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error

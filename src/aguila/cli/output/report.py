"""Format the findings of ``aguila check``: as text, as JSON, and as JUnit for build servers."""

from __future__ import annotations

import re
from typing import Literal
from xml.etree import ElementTree

import msgspec

from aguila.stream.verification.checker import Finding
from aguila.testing.plurals import counted

ReportFormat = Literal["text", "json", "junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Checked(msgspec.Struct, kw_only=True):
    """The target of a check and all findings."""

    target: str
    format: str
    streams: int
    events: int
    findings: list[Finding]

    @property
    def violations(self) -> list[Finding]:
        """The findings that break a rule."""
        return [finding for finding in self.findings if finding.level != "note"]

    @property
    def is_clean(self) -> bool:
        """Whether no rule was broken."""
        return not self.violations


def report(checked: Checked, form: ReportFormat) -> str:
    """Format the report."""
    if form == "json":
        return as_json(checked)
    return as_junit(checked) if form == "junit" else as_text(checked)


def as_text(checked: Checked) -> str:
    """Format one line for each finding, one for each rule with a link to its explanation, and a summary."""
    lines: list[str] = []
    for finding in checked.findings:
        before = f"stream {finding.stream}, " if checked.streams > 1 else ""
        lines.append(f"{finding.level}: {before}{finding}")
    lines += [f"help: {rule} is explained in {link}" for rule, link in _links(checked.findings).items()]
    errors = sum(finding.level == "error" for finding in checked.findings)
    warnings = sum(finding.level == "warning" for finding in checked.findings)
    of = f"{counted(checked.events, 'event')} ({checked.format}) from {checked.target}"
    if checked.streams > 1:
        of = f"{counted(checked.streams, 'stream')}, {of}"
    verdict = "no violations" if checked.is_clean else f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    lines.append(f"{of}: {verdict}")
    return "\n".join(lines)


def _links(findings: list[Finding]) -> dict[str, str]:
    return {finding.rule: finding.help for finding in findings}


def as_json(checked: Checked) -> str:
    """Format a JSON object: ``target``, ``format``, ``streams``, ``events``, ``ok`` and ``findings``."""
    found = {**msgspec.structs.asdict(checked), "ok": checked.is_clean}
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def as_junit(checked: Checked) -> str:
    """Format a failed test case for each broken rule, or one that passes."""
    rules: dict[str, list[Finding]] = {}
    for finding in checked.violations:
        rules.setdefault(finding.rule, []).append(finding)
    suite = ElementTree.Element("testsuite", name="aguila check", failures=str(len(rules)), errors="0", skipped="0")
    suite.set("tests", str(len(rules) or 1))
    if not rules:
        ElementTree.SubElement(suite, "testcase", classname=_xml(checked.target), name="follows the protocol")
    for rule, findings in rules.items():
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(checked.target), name=rule)
        failure = ElementTree.SubElement(case, "failure", type=findings[0].level, message=_xml(findings[0].message))
        failure.text = _xml("\n".join([*map(str, findings), f"See {findings[0].help}"]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _xml(text: str) -> str:
    """Replace the characters that XML cannot contain, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)

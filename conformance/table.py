#!/usr/bin/env python3
"""Draws the table of SDKs and behaviours into COMPATIBILITY.md, between its markers.

Reads scenarios.toml for the rows and results.json for the columns; `conformance/run --update-table` writes the latter.
With --check nothing is written and the exit code says whether the table is up to date.
"""

import json
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "COMPATIBILITY.md"
BEGIN, END = "<!-- conformance:begin -->", "<!-- conformance:end -->"
TITLES = {
    "rust": "Rust",
    "python": "Python",
    "javascript": "JavaScript",
    "dotnet": ".NET",
    "java": "Java",
    "go": "Go",
}


def main():
    sections = tomllib.loads((HERE / "scenarios.toml").read_text())
    summary = json.loads((HERE / "results.json").read_text())
    before = DOCUMENT.read_text() if DOCUMENT.exists() else "# Compatibility\n"
    after = placed(before, drawn(sections, summary))
    if "--check" in sys.argv[1:]:
        return 0 if before == after else f"{DOCUMENT.name} is not what results.json says: run conformance/table.py"
    DOCUMENT.write_text(after)
    return 0


def placed(document, table):
    """The document with the table between its markers; a document without them gets a section at its end."""
    block = f"{BEGIN}\n{table}\n{END}"
    if BEGIN not in document:
        return f"{document.rstrip()}\n\n## Official SDKs\n\n{block}\n"
    head, rest = document.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return head + block + tail


def drawn(sections, summary):
    languages = sorted(summary, key=list(TITLES).index)
    notes = Notes()
    lines = ["Columns are the official SDKs, unchanged, against `orrery emulator`, of one and of three regions.", ""]
    lines += [f"- {TITLES[language]}: `{summary[language]['sdk']}` {summary[language]['version']}" for language in languages]
    lines += ["", "✓ the test passes; – the SDK cannot ask for it; ✗ the test fails.", ""]
    lines += [f"| Test | Behaviour | {' | '.join(TITLES[language] for language in languages)} |"]
    lines += ["|---|---|" + ":-:|" * len(languages)]
    for section, scenarios in sections.items():
        lines.append(f"| **{section}** | |" + " |" * len(languages))
        for name, meaning in scenarios.items():
            cells = [notes.cell(summary[language]["results"].get(name)) for language in languages]
            lines.append(f"| `{name}` | {escaped(meaning)} | {' | '.join(cells)} |")
    return "\n".join(lines + notes.lines())


class Notes:
    """Footnotes, numbered as they come up; equal reasons share one."""

    def __init__(self):
        self.numbers = {}

    def cell(self, result):
        if result == "pass":
            return "✓"
        if result is None:
            return "?"
        kind, _, reason = result.partition(": ")
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"{'–' if kind == 'skip' else '✗'} <sup>{number}</sup>"

    def lines(self):
        listed = [f"{number}. {escaped(reason)}" for reason, number in self.numbers.items()]
        return ["", *listed] if listed else []


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())

"""Compares the guide's table of environment variables with those in the source."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/guide/when-things-go-wrong.md"
FOLDERS = ["src", "cli", "nn", "bindings"]
ENDINGS = (".rs", ".py", ".lua")
# A name on its own in quotes: a variable that is read or set. C's constants have no quotes.
NAME = re.compile(r"""["'](UNISONO_[A-Z_]+)["']""")
# Variables of the tests inside these folders, and a placeholder for a library that does not exist.
OF_TESTS = {"UNISONO_LIBNOWHERE"}


def in_source() -> set[str]:
    """Returns the variables in the source, except in tests."""
    found: set[str] = set()
    for path in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*")):
        inside = path.relative_to(ROOT).parts
        if path.name.endswith(ENDINGS) and not {"tests", "tests.rs", "build.rs"} & set(inside):
            found |= set(NAME.findall(path.read_text()))
    return found - OF_TESTS


def in_table() -> set[str]:
    """Returns the variables in the guide's table."""
    section = PAGE.read_text().split("## Environment variables")[1]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"UNISONO_[A-Z_]+", row)}


def test_the_table_has_every_variable() -> None:
    """Each variable in the source has a row, and each row has a variable."""
    source, table = in_source(), in_table()
    assert "UNISONO_TIMEOUT" in source
    assert not source - table, f"{PAGE.name} lacks {sorted(source - table)}"
    assert not table - source, f"{PAGE.name} has {sorted(table - source)}, which no code reads"

"""Runs the Python code of the README and of the guide, on two ranks.

The blocks of one page are one program: they run in order, in one process for each rank.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "bindings/python/README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
FRAMEWORKS = ["torch", "jax", "flax", "keras", "pytensor"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: Path) -> str:
    """Returns the page's blocks, each at its original line, so that errors point into the page."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines) + "\n"


# A page whose program starts its own workers needs no launcher.
# The README's programs also run in a world of one.
CASES = [(PAGES[0], 1)] + [
    (page, 2 if "uni.init()" in page.read_text() or "fork(2)" not in page.read_text() else 1)
    for page in PAGES
]


@pytest.mark.parametrize(("page", "ranks"), CASES, ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_page(page: Path, ranks: int, tmp_path: Path) -> None:
    """A page's code runs without an error."""
    script = tmp_path / f"{page.stem}.py"
    script.write_text(program(page))
    for name in FRAMEWORKS:
        used = re.search(rf"^(import|from) {name}\b", script.read_text(), re.MULTILINE)
        if used and importlib.util.find_spec(name) is None:
            pytest.skip(f"{page.name} needs {name}, which is not installed")
    launcher = [] if ranks == 1 else ["-m", "unisono", "run", "-n", str(ranks), "--"]
    command = [sys.executable, *launcher, str(script)]
    # Compiling graphs would take longer than everything else.
    environment = {**os.environ, "PYTENSOR_FLAGS": "mode=FAST_COMPILE"}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, f"{page.name} on {ranks} ranks:\n{result.stdout}{result.stderr}"


def test_pages_have_code() -> None:
    """The pattern still finds the code blocks."""
    assert "uni.all_reduce" in program(ROOT / "README.md")
    assert "uni.all_to_all" in program(ROOT / "docs/guide/collectives.md")
    assert "uni.MatrixTable" in program(ROOT / "docs/guide/tables.md")
    assert "functions.fork" in program(ROOT / "docs/guide/functions.md")

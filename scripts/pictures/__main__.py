"""Redraws the pictures of the README and the guide: `make pictures`, or `python scripts/pictures`.

Pictures of halos are drawn by `grid.show()`, and written by their test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bars
import consistency
import training
import verbs

import world

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs/guide/pictures"
DRAWINGS = {
    "world.svg": world.draw,
    "collectives-verbs.svg": verbs.draw,
    "tables-consistency.svg": consistency.draw,
    "performance-all-reduce.svg": bars.draw,
}


def main() -> None:
    """Writes all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw())
    for name, content in training.draw().items():
        (FOLDER / name).write_bytes(content)
    halos = "bindings/python/tests/test_halo_pictures.py"
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", halos]
    subprocess.run(pytest, cwd=ROOT, check=True, env={**os.environ, "UNISONO_WRITE_PICTURES": "1"})


if __name__ == "__main__":
    main()

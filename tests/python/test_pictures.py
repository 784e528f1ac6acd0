"""Compares the pictures of the README and the guide with `make pictures` and with real calls."""

import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts/pictures"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

VERBS = """
import sys

import numpy as np

import unisono as uni

sys.path.insert(0, sys.argv[1])
from verbs import VERBS

world = uni.init()


def number(name):
    if "+" in name:
        return sum(number(one) for one in name.split("+"))
    if name.startswith("S"):
        return sum(number(letter + name[1:]) for letter in "abc")
    return 10 ** "abc".index(name[0]) * (1 + int(name[1:] or 0)) if name else 0


def array(names):
    return None if names is None else np.array([number(name) for name in names])


def call(name, mine):
    if name in ("broadcast", "reduce", "all_reduce"):
        getattr(uni, name)(mine)
        return mine
    if name in ("gather", "all_gather"):
        stacked = getattr(uni, name)(mine)
        return None if stacked is None else stacked.ravel()
    if name == "send, recv":
        if world.rank == 0:
            uni.send(mine, to=1)
        elif world.rank == 1:
            uni.recv(mine, source=0)
        return mine
    return getattr(uni, name)(mine)


for name, before, after in VERBS:
    found, expected = call(name, array(before[world.rank])), array(after[world.rank])
    assert np.array_equal(found, expected), (name, world.rank, found, expected)
print("all verbs")
"""


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Loads the script that draws them."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    found = importlib.util.spec_from_file_location("pictures", SCRIPTS / "__main__.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_drawings_in_the_guide_are_up_to_date(pictures: ModuleType) -> None:
    """Each drawing equals the committed one, is well formed, and appears on a page."""
    others = [ROOT / "README.md", ROOT / "docs/performance.md"]
    pages = "".join(path.read_text() for path in [*others, *(ROOT / "docs/guide").glob("*.md")])
    for name, draw in pictures.DRAWINGS.items():
        drawn = draw()
        assert (pictures.FOLDER / name).read_text() == drawn, f"{name}: run `make pictures`"
        ElementTree.fromstring(drawn)
        assert f"pictures/{name})" in pages, f"no page shows {name}"


def test_bars_have_the_figures_of_the_page(pictures: ModuleType) -> None:
    """Every row of the table is read; the page's ratios follow from the same numbers."""
    found = pictures.bars.figures()
    assert len(found) == 6 and {len(times) for times in found.values()} == {5}
    arena, private, mpich, _, gloo = found[2, "100 MB"]
    assert arena < private < mpich < gloo
    page = (ROOT / "docs/performance.md").read_text()
    times = "\N{MULTIPLICATION SIGN}"
    assert f"| {mpich / private:.1f}{times} | {mpich / arena:.1f}{times} |" in page


def test_verbs_match_the_drawing(tmp_path: Path) -> None:
    """On three ranks, as in the picture."""
    (tmp_path / "verbs_on_ranks.py").write_text(VERBS)
    command = [sys.executable, "-m", "unisono", "run", "-n", "3", "--", str(tmp_path / "verbs_on_ranks.py")]
    result = subprocess.run([*command, str(SCRIPTS)], capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all verbs") == 3


def test_no_worker_in_the_picture_exceeds_the_bound(pictures: ModuleType) -> None:
    """Before a step begins, the slowest worker has completed as many steps as the consistency requires."""
    for _, bound, _ in pictures.consistency.KINDS:
        workers = pictures.consistency.schedule(bound)
        waits = 0
        for spans in workers:
            for step, (begin, _) in enumerate(spans):
                slowest = min(sum(end <= begin for _, end in other) for other in workers)
                assert bound is None or step - slowest <= bound
                waits += step > 0 and begin > spans[step - 1][1]
        assert (waits > 0) == (bound is not None)


def pixels(png: bytes) -> bytes:
    """Returns the rows of a picture that was written without filters."""
    at, packed = 8, b""
    while at < len(png):
        length, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        packed += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return zlib.decompress(packed)


def test_the_run_in_the_guide_is_reproducible(pictures: ModuleType) -> None:
    """Its curve and its filters are reproduced, up to the last digits on other machines."""
    drawn = pictures.training.draw()
    kept = {name: (pictures.FOLDER / name).read_bytes() for name in drawn}
    advice = "run `make pictures`"
    old, new = (files["experiments-loss.svg"].decode() for files in (kept, drawn))
    assert NUMBER.sub("", old) == NUMBER.sub("", new), f"experiments-loss.svg: {advice}"
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    assert all(abs(float(one) - float(other)) < 0.25 for one, other in pairs), (
        f"experiments-loss.svg: {advice}"
    )
    old_rows, new_rows = (pixels(files["experiments-filters.png"]) for files in (kept, drawn))
    assert len(old_rows) == len(new_rows) > 1000
    distance = max(abs(one - other) for one, other in zip(old_rows, new_rows, strict=True))
    assert distance <= 2, f"experiments-filters.png: {advice}"

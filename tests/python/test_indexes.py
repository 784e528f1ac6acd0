"""Compares index pages with the contents of their folders: no file is missing from them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)")


def linked(page: Path) -> set[str]:
    """Returns the files of the repository that a page links to, as paths from the root."""
    targets = (target for target in LINK.findall(page.read_text()) if ":" not in target)
    return {str((page.parent / target).resolve().relative_to(ROOT)) for target in targets}


def files(folder: str, *endings: str) -> set[str]:
    """Returns the files of a folder and its subfolders, as paths from the root."""
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.name.endswith(endings)}


@pytest.mark.parametrize(
    ("page", "folder", "ending"),
    [
        ("docs/README.md", "docs/guide", ".md"),
        ("docs/README.md", "docs/design", ".md"),
        ("experiments/README.md", "experiments", ".yaml"),
    ],
    ids=lambda value: value.strip("."),
)
def test_an_index_links_to_every_file(page: str, folder: str, ending: str) -> None:
    """A new file needs a line in its index."""
    expected = files(folder, ending)
    assert len(expected) > 5
    missing = sorted(expected - linked(ROOT / page))
    assert not missing, f"{page} has no link to {missing}"


def test_every_example_is_listed() -> None:
    """The page of examples lists each program, or the folder of framework pairs that it belongs to."""
    text = (ROOT / "examples/README.md").read_text()
    programs = {name.removeprefix("examples/") for name in files("examples", ".py", ".rs", ".c", ".lua")}
    helpers = {
        "applications/clicks.py",
        "applications/dlrm.py",
        "frameworks/data.py",
        "halos/cells.py",
        "halos/segmentation.py",
    }
    missing = [
        name
        for name in sorted(programs - helpers)
        if f"`{name}`" not in text and f"`{Path(name).parent}/`" not in text
    ]
    assert not missing, f"examples/README.md does not list {missing}"

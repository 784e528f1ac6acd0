"""Checks links between pages: the heading behind each `#` exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = {"target", ".venv", ".venv-dist", ".venv-docs", ".venv-openmpi", ".tools", "runs"}
LINK = re.compile(r"\]\(([^)\s#]*)#([^)\s]+)\)")


def pages() -> list[Path]:
    """Returns every page of the repository."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in BUILT]
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))])


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as repository hosts generate them, and explicit ones."""
    text = page.read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


def test_links_lead_to_headings() -> None:
    """A renamed heading fails here with the links that point to it."""
    wrong, followed = [], 0
    for page in pages():
        for name, anchor in LINK.findall(page.read_text()):
            target = page.parent / name if name else page
            if ":" in name or target.suffix != ".md" or not target.exists():
                continue
            followed += 1
            if anchor not in anchors(target):
                wrong.append(f"{page.relative_to(ROOT)}: {name}#{anchor}")
    assert followed > 10
    assert not wrong, "\n".join(wrong)

"""MkDocs hooks: which files the site has, and how pages written for a forge become pages of the site.

A page keeps its path from the root of the repository. A linked source file becomes a page that shows it.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parent))

import native_reference
import python_reference

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^ *(```+|~~~+)")
LIST = re.compile(r"^ *([-*]|\d+\.) ")
PICTURES = {".svg", ".png"}
LANGUAGES = {".py": "python", ".rs": "rust", ".yaml": "yaml", ".h": "c", ".lua": "lua", ".c": "c"}

_sources: set[str] = set()


def on_files(files: Files, config: Any) -> Files:
    """Replaces the files of docs/ by the pages of the repository, what they link to, and the reference."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    # A page that was just written is not tracked yet.
    tracked |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file()}
    made = {**python_reference.pages(), **native_reference.pages()}
    found = {file.src_uri for file in files.documentation_pages()}
    entries = {name for name in nav_pages(config.nav) if name in tracked}
    entries |= {f"docs/{name}" for name in found}
    # The theme's own files stay.
    chosen = Files([file for file in files if file.src_dir != config.docs_dir])
    for name in sorted(linked_files(entries, tracked)):
        level = InclusionLevel.UNDEFINED if name in entries else InclusionLevel.NOT_IN_NAV
        if name.endswith(".md") or Path(name).suffix in PICTURES:
            chosen.append(File.generated(config, name, abs_src_path=str(ROOT / name), inclusion=level))
        else:
            _sources.add(name)
            page = source_page(name)
            chosen.append(File.generated(config, f"{name}.md", content=page, inclusion=level))
    for name, text in made.items():
        chosen.append(File.generated(config, name, content=text))
    return chosen


def nav_pages(tree: Any) -> set[str]:
    """Returns the pages of the navigation."""
    if isinstance(tree, str):
        return {tree.partition("#")[0]}
    branches = tree.values() if isinstance(tree, dict) else tree
    return set().union(*(nav_pages(branch) for branch in branches))


def linked_files(entries: set[str], tracked: set[str]) -> set[str]:
    """Returns the pages and all files that they link to, directly or through other pages."""
    seen: set[str] = set()
    ahead = sorted(entries)
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.endswith(".md"):
            targets = (resolve(name, match[2]) for match in LINK.finditer((ROOT / name).read_text()))
            ahead.extend(target for target in targets if target in tracked)
    return seen


def resolve(page: str, target: str) -> str:
    """Returns the path from the root of a link's target."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def source_page(name: str) -> str:
    """Returns the page that shows a source file."""
    text = (ROOT / name).read_text()
    language = LANGUAGES.get(Path(name).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# `{name}`\n\n````{language}\n{text.rstrip()}\n````\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapts a page that was written for a forge."""
    name = page.file.src_uri
    if name.startswith("reference/") or name.removesuffix(".md") in _sources:
        return markdown

    def link(match: re.Match[str]) -> str:
        suffix = ".md" if resolve(name, match[2]) in _sources else ""
        return f"{match[1]}{match[2]}{suffix}{match[3]}"

    return lists(LINK.sub(link, markdown))


def lists(markdown: str) -> str:
    """Writes lists for Python-Markdown: a blank line before them, and four spaces for each level."""
    result: list[str] = []
    fence, shift = "", 0
    for line in markdown.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        opening = FENCE.match(line)
        if not fence:
            shift = (4 * ((indent + 2) // 4 or 1) if indent > 1 else indent) - indent
            before = result[-1] if result else ""
            if LIST.match(line) and indent < 2 and before and not LIST.match(before) and before[0] != " ":
                result.append("")
        if opening and not fence:
            fence = opening[1]
            line = re.sub(r"(`\w+) .*", r"\1", line)  # a second word, as in `python cuda`, is for the tests
        elif fence and line.strip() == fence:
            fence = ""
        result.append(" " * shift + line if line.strip() else line)
    return "\n".join(result) + "\n"


def on_post_build(config: Any) -> None:
    """Adds the Rust documentation, if it was built."""
    built = ROOT / "target/doc"
    if (built / "unisono/index.html").exists():
        shutil.copytree(built, Path(config.site_dir) / "rust", dirs_exist_ok=True)

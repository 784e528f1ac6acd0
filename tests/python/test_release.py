"""Tests what `make release-check` reads in the repository, on files with mistakes."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = importlib.util.spec_from_file_location("facts", ROOT / "scripts/release/facts.py")
assert SPEC is not None and SPEC.loader is not None
facts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(facts)

VERSION = facts.version_of(ROOT)
READ = [
    "Cargo.toml",
    "CITATION.cff",
    "CHANGELOG.md",
    "docs/guide/c-and-lua.md",
    "bindings/python/pyproject.toml",
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that state versions, to be changed."""
    for name in [*READ, *(str(path.relative_to(ROOT)) for path in facts.rockspecs(ROOT))]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    """Replaces text in a file, which must have it."""
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))


def test_all_files_state_one_version() -> None:
    """As it stands, the repository has no contradiction."""
    assert facts.problems_of_versions(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Cargo.toml", f'unisono-nn = {{ path = "nn", version = "{VERSION}"'),
        ("CITATION.cff", f"version: {VERSION}"),
        ("docs/guide/c-and-lua.md", f"unisono-{VERSION}-1.rockspec"),
        (f"bindings/lua/unisono-{VERSION}-1.rockspec", f"version = '{VERSION}-1'"),
        (f"bindings/lua/unisono-{VERSION}-1.rockspec", f"tag = 'v{VERSION}'"),
    ],
)
def test_another_version_is_found(copy: Path, name: str, text: str) -> None:
    """A file that was forgotten is named, with both versions."""
    change(copy / name, text, text.replace(VERSION, "7.8.9"))
    (found,) = facts.problems_of_versions(copy)
    assert "7.8.9" in found and VERSION in found and Path(name).name in found


def test_a_tag_needs_its_section_and_date(copy: Path) -> None:
    """A tag must be the version, and the changelog and the citation must have the release."""
    wrong = facts.problems_of_tag(copy, "v7.8.9")
    assert len(wrong) == 3 and "v7.8.9" in wrong[0], wrong
    change(copy / "CHANGELOG.md", "## [Unreleased]", f"## [Unreleased]\n\n## [{VERSION}] - 2026-01-31")
    change(copy / "CITATION.cff", f"version: {VERSION}", f"version: {VERSION}\ndate-released: 2026-01-31")
    assert facts.problems_of_tag(copy, f"v{VERSION}") == []


def test_placeholders_are_found(copy: Path) -> None:
    """Files with addresses of the domain for examples are named, and only those."""
    for path in [copy / name for name in facts.PUBLISHED] + facts.rockspecs(copy):
        path.write_text(path.read_text().replace(facts.PLACEHOLDER, "unisono.test"))
    assert facts.placeholders(copy) == []
    change(copy / "Cargo.toml", "unisono.test", facts.PLACEHOLDER)
    assert facts.placeholders(copy) == ["Cargo.toml"]


def test_dependencies_for_a_newer_rust_are_found() -> None:
    """Versions are compared as numbers; a patch release and a package that is not used do not count."""
    versions = {"old": "1.9", "same": "1.89.1", "none": None, "new": "1.100", "unused": "1.200"}
    packages = [
        {"id": name, "name": name, "version": "1.0.0", "rust_version": rust}
        for name, rust in versions.items()
    ]
    nodes = [{"id": name} for name in versions if name != "unused"]
    found = facts.newer_than({"resolve": {"nodes": nodes}, "packages": packages}, "1.89")
    assert found == ["new 1.0.0 needs Rust 1.100"]


def test_crates_without_a_licence_are_found() -> None:
    """A package must have what users and crates that depend on it need."""
    names = [f"unisono-1.0.0/{name}" for name in ("Cargo.toml", "Cargo.lock", "README.md", "src/lib.rs")]
    assert facts.problems_of_crate([*names, "unisono-1.0.0/LICENSE-MIT"], "unisono") == [
        "unisono lacks LICENSE-APACHE"
    ]


def test_workflows_run_only_targets_that_exist() -> None:
    """Every command of a workflow is a target, so that it can be tried on any machine."""
    makefile = (ROOT / "Makefile").read_text()
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        text = re.sub(r"\$\{\{ matrix\.target \}\}", "soak", path.read_text())
        assert facts.other_commands(text) == [], path.name
        for target in facts.targets(text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: {target}"
    assert facts.other_commands("- run: pip install x\n- run: make test\n  run: make dist; rm x") == [
        "pip install x",
        "make dist; rm x",
    ]

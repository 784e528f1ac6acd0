"""What the repository states about a release: versions, addresses, the oldest Rust, what workflows run."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Files with addresses that package indexes show to users.
PUBLISHED = ["Cargo.toml", "bindings/python/pyproject.toml"]
# A domain that is reserved for examples: no address below it exists.
PLACEHOLDER = "example.org"


def version_of(root: Path) -> str:
    """Returns the version of the workspace."""
    found = re.search(r'^version = "([^"]+)"$', (root / "Cargo.toml").read_text(), re.MULTILINE)
    assert found, "Cargo.toml has no version"
    return found[1]


def rockspecs(root: Path) -> list[Path]:
    """Returns the rockspecs of the Lua binding."""
    return sorted((root / "bindings/lua").glob("*.rockspec"))


def problems_of_versions(root: Path) -> list[str]:
    """Returns the places whose version is not that of the workspace."""
    version = version_of(root)
    manifest = (root / "Cargo.toml").read_text()
    stated = {
        f"Cargo.toml, {name}": found
        for name, found in re.findall(r'^(unisono\S*) = \{.*version = "([^"]+)"', manifest, re.MULTILINE)
    }
    citation = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    stated["CITATION.cff"] = citation[1] if citation else "none"
    specs = rockspecs(root)
    for spec in specs:
        text = spec.read_text()
        stated[f"{spec.name}, its name"] = spec.stem.removeprefix("unisono-").rpartition("-")[0]
        for field, pattern in {"version": r"version = '(.+)-\d+'", "tag": r"tag = 'v(.+)'"}.items():
            found = re.search(pattern, text)
            stated[f"{spec.name}, {field}"] = found[1] if found else "none"
    guide = (root / "docs/guide/c-and-lua.md").read_text()
    for name in re.findall(r"unisono-(\S+)-\d+\.rockspec", guide):
        stated["docs/guide/c-and-lua.md, the rockspec"] = name
    found = [f"{place} has {one}, expected {version}" for place, one in stated.items() if one != version]
    return found + ([] if len(specs) == 1 else [f"bindings/lua has {len(specs)} rockspecs, expected 1"])


def problems_of_tag(root: Path, tag: str) -> list[str]:
    """Returns what does not fit the tag of a release."""
    version = version_of(root)
    found = [] if tag == f"v{version}" else [f"the tag is {tag}, expected v{version}"]
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")
    if not re.search(r"^date-released: \S+$", (root / "CITATION.cff").read_text(), re.MULTILINE):
        found.append("CITATION.cff has no date-released")
    return found


def placeholders(root: Path) -> list[str]:
    """Returns the files that users see and whose addresses are placeholders."""
    paths = [*(root / name for name in PUBLISHED), *rockspecs(root)]
    return [str(path.relative_to(root)) for path in paths if PLACEHOLDER in path.read_text()]


def numbers(version: str) -> tuple[int, ...]:
    """Returns a Rust version as numbers, which compare as versions do."""
    return tuple(int(part) for part in version.split("."))


def newer_than(metadata: dict[str, Any], rust: str) -> list[str]:
    """Returns the dependencies, in what `cargo metadata` prints, that need a newer Rust."""
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [one for one in metadata["packages"] if one["id"] in used and one["rust_version"]]
    newer = [one for one in packages if numbers(one["rust_version"])[:2] > numbers(rust)[:2]]
    return [f"{one['name']} {one['version']} needs Rust {one['rust_version']}" for one in newer]


def problems_of_crate(names: Iterable[str], crate: str) -> list[str]:
    """Returns what a packed crate lacks; its names begin with a folder."""
    inside = {name.partition("/")[2] for name in names}
    needed = ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"]
    needed += {"unisono-cli": ["src/main.rs"], "unisono-nn": ["data/mnist/README.md"]}.get(crate, [])
    return [f"{crate} lacks {name}" for name in needed if name not in inside]


def other_commands(workflow: str) -> list[str]:
    """Returns the commands of a workflow that are not one target of the Makefile."""
    commands = re.findall(r"^\s*(?:- )?run: *(.*)$", workflow, re.MULTILINE)
    return [command for command in commands if not re.fullmatch(r"make [\w-]+( [A-Z_]+=\S+)*", command)]


def targets(workflow: str) -> set[str]:
    """Returns the targets of the Makefile that a workflow runs."""
    return set(re.findall(r"^\s*(?:- )?run: *make ([\w-]+)", workflow, re.MULTILINE))

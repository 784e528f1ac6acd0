"""The package itself: its metadata, its licence files, and where it can be imported."""

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BINDING = ROOT / "bindings/python"


def project():
    """The project file, as text: Python 3.10 has no parser for it."""
    return (BINDING / "pyproject.toml").read_text()


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_get_a_clear_error(platform):
    code = f"import sys; sys.platform = {platform!r}; import unisono.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: unisono: expected Linux") and f"received {platform}" in last


def test_a_free_threaded_interpreter_gets_a_clear_error():
    # Its flags are all that tells it apart: it ignores the native module, which is built for the stable ABI.
    code = "import sys; sys.abiflags = 't'; import multiverso"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: unisono: expected an interpreter with the global interpreter lock")
    assert sys.executable in last


def test_a_package_without_its_native_module_gives_a_clear_error(tmp_path):
    sources = BINDING / "python/unisono"
    shutil.copytree(sources, tmp_path / "unisono", ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, "-c", "import unisono"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: unisono: expected the native module") and "make develop" in last
    assert str(tmp_path) in last


def test_licence_files_are_those_of_the_repository():
    originals = {
        "LICENSE-MIT": "LICENSE-MIT",
        "LICENSE-APACHE": "LICENSE-APACHE",
        "NOTICE-MNIST.md": "examples/data/mnist/README.md",
    }
    for name, original in originals.items():
        assert (BINDING / "licenses" / name).read_bytes() == (ROOT / original).read_bytes()
        assert f"licenses/{name}" in project()


def test_the_guide_lists_every_extra():
    extras = project().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = re.findall(r"^(\w+) = ", extras, re.MULTILINE)
    assert len(names) == 10
    table = (ROOT / "docs/guide/install.md").read_text()
    assert [name for name in names if f"| `{name}` |" not in table] == []
    checked = (ROOT / "scripts/check_dist.py").read_text()
    assert [name for name in names if f'"{name}"' not in checked] == []


def test_versions_of_the_workspace_are_one():
    manifest = (ROOT / "Cargo.toml").read_text()
    versions = re.findall(r'^(?:version|unisono\S* = \{.*version) = "([^"]+)"', manifest, re.MULTILINE)
    assert len(versions) == 4 and len(set(versions)) == 1, versions


def test_crates_read_no_files_of_other_folders():
    """What a crate includes, for its unit tests too, must be packed with it, or it cannot be published."""
    crates = {"src": ROOT, "nn/src": ROOT / "nn", "cli/src": ROOT / "cli"}
    found = []
    for folder, crate in crates.items():
        manifest = (crate / "Cargo.toml").read_text()
        packed = re.findall(r'"(/[^"]+)"', manifest.partition("\ninclude = [")[2].partition("]")[0])
        assert "/src" in packed, crate
        for path in (ROOT / folder).rglob("*.rs"):
            read = r'(?:include_(?:str|bytes)!\(|#\[path = )"([^"]+)"'
            for name in re.findall(read, path.read_text()):
                target = Path(*_normal(Path(path.parent, name)))
                if not (target.exists() and any(target.is_relative_to(f"{crate}{one}") for one in packed)):
                    found.append(f"{path}: {name}")
    assert not found


def _normal(path):
    """The parts of a path, without following links."""
    parts = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def test_a_built_wheel_is_complete():
    wheels = sorted((ROOT / "target/wheels").glob("unisono-*.whl"))
    if not wheels:
        pytest.skip("left out: no wheel in target/wheels; make target/wheels/.built")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        names = wheel.namelist()
        metadata = next(name for name in names if name.endswith("/METADATA"))
        fields = email.message_from_bytes(wheel.read(metadata))
    if not fields.get_all("License-File"):
        pytest.skip("left out: the wheel in target/wheels is older than its project file")
    assert len([name for name in names if "/licenses/" in name]) == 3
    assert fields["Author"] == "The Unisono developers" and fields["Keywords"]
    assert "all" in fields.get_all("Provides-Extra")
    assert any(url.startswith("Documentation, https://") for url in fields.get_all("Project-URL"))

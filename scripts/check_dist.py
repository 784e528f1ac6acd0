"""Checks what `make dist` has built: tags, metadata, licence files, and the files that the sources need.

Usage: scripts/check_dist.py FOLDER [MACHINE]
With a machine such as aarch64, the folder has the wheel for that machine and no source archive.
"""

import email
import platform
import re
import struct
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The licence files of the package, and the files of the repository of which they are copies.
LICENCES = {
    "licenses/LICENSE-MIT": "LICENSE-MIT",
    "licenses/LICENSE-APACHE": "LICENSE-APACHE",
    "licenses/NOTICE-MNIST.md": "examples/data/mnist/README.md",
}
EXTRAS = {"torch", "jax", "keras", "pytensor", "functions", "zarr", "mpi", "all", "test", "docs"}
# The number of a machine in the header of its libraries (ELF's e_machine).
MACHINES = {"x86_64": 62, "aarch64": 183}
# Links in the repository, which crates read when they are compiled.
LINKS = ["cli/src/bench/nn/mnist_convnet.yaml", "nn/data/mnist/train-images-idx3-ubyte.gz"]


def problems_of_wheel(path: Path, machine: str) -> list[str]:
    """Returns what is wrong with a wheel for a machine."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        found = problems_of_metadata(email.message_from_bytes(wheel.read(f"{info}/METADATA")))
        tags = email.message_from_bytes(wheel.read(f"{info}/WHEEL")).get_all("Tag") or []
        needed = [f"{info}/licenses/{name}" for name in LICENCES]
        needed += ["unisono/_native.abi3.so", "unisono/_native.pyi", "unisono/py.typed"]
        needed += ["multiverso/__init__.py", "synkhronos/__init__.py"]
        needed += ["unisono/torch/distributed/native_backend.cpp"]
        found += [f"it lacks {name}" for name in needed if name not in names]
        for name, original in LICENCES.items():
            inside = f"{info}/licenses/{name}"
            if inside in names and wheel.read(inside) != (ROOT / original).read_bytes():
                found.append(f"its {name} is not that of the repository")
        right = [tag.startswith("cp310-abi3-manylinux") and tag.endswith(f"_{machine}") for tag in tags]
        if not right or not all(right):
            found.append(f"its tags are {tags}, which are not for {machine}")
        with wheel.open("unisono/_native.abi3.so") as native:
            (number,) = struct.unpack("<H", native.read(20)[18:])
        if number != MACHINES[machine]:
            found.append(f"its native module is for machine {number} of ELF's list, not for {machine}")
        found += [f"it contains {name}" for name in names if re.search(r"__pycache__|(^|/)tests?/", name)]
    return [f"{path.name}: {one}" for one in found]


def problems_of_sources(path: Path) -> list[str]:
    """Returns what is wrong with a source archive."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        info = archive.extractfile(next(one for one in archive if one.name.endswith("/PKG-INFO")))
        assert info is not None
        found = problems_of_metadata(email.message_from_bytes(info.read()))
    needed = ["Cargo.lock", "src/lib.rs", "nn/src/lib.rs", "cli/src/lib.rs"]
    found += [f"it lacks {name}" for name in needed if name not in names]
    of_package = ["pyproject.toml", "README.md", *LINKS, *LICENCES]
    found += [f"it lacks {name}" for name in of_package if not has(names, name)]
    return [f"{path.name}: {one}" for one in found]


def has(names: list[str], name: str) -> bool:
    """Whether an archive has a file, at its place or in a folder of the binding."""
    return any(one == name or one.endswith(f"/{name}") for one in names)


def problems_of_metadata(metadata: Message) -> list[str]:
    """Returns what the metadata lacks."""
    found = []
    extras = set(metadata.get_all("Provides-Extra") or [])
    if extras != EXTRAS:
        found.append(f"its extras differ: {sorted(extras ^ EXTRAS)}")
    if sorted(metadata.get_all("License-File") or []) != sorted(LICENCES):
        found.append(f"its licence files are {metadata.get_all('License-File')}")
    if metadata["License-Expression"] != "MIT OR Apache-2.0":
        found.append(f"its licence is {metadata['License-Expression']}")
    named = ["Author", "Keywords", "Summary", "Requires-Python", "Description-Content-Type"]
    found += [f"its metadata has no {name}" for name in named if not metadata[name]]
    urls = {url.partition(",")[0] for url in metadata.get_all("Project-URL") or []}
    expected = {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    found += [f"its metadata has no URL {name}" for name in sorted(expected - urls)]
    if len(metadata.get_all("Classifier") or []) < 10:
        found.append("its metadata has fewer than 10 classifiers")
    return found


def main(folder: str, machine: str = "") -> int:
    """Prints all problems; returns the exit status."""
    wheels, sources = sorted(Path(folder).glob("*.whl")), sorted(Path(folder).glob("*.tar.gz"))
    found = [one for path in wheels for one in problems_of_wheel(path, machine or platform.machine())]
    found += [one for path in sources for one in problems_of_sources(path)]
    if not wheels or not (sources or machine):
        found.append(f"{folder}: expected a wheel" + ("" if machine else " and a source archive"))
    counts = f"{len(wheels)} wheel and {len(sources)} source archive"
    print("\n".join(found) or f"{counts}: complete")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

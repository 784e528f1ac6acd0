"""Tests the built site: public names have entries, search finds things, other hosts are not needed."""

import ast
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "target/site"
PACKAGES = ROOT / "bindings/python/python"
# Their `__all__` is for other files of the package.
INTERNAL = {"unisono._native", "unisono.functions.with_pytensor", "unisono.torch.space.rules"}

# A query, and the page that must be among its results.
QUERIES = [
    ("unisono.all_gather", "reference/python/world.html"),
    ("Pending add_done_callback", "reference/python/world.html"),
    ("PeerLost", "docs/guide/faq.html"),
    ("PeerLost", "reference/python/errors.html"),
    ("Unsupported NotImplementedError", "docs/guide/faq.html"),
    ("srun pmi2", "docs/guide/slurm.html"),
    ("SBATCH array", "docs/guide/slurm.html"),
    ("adadelta", "docs/guide/updaters.html"),
    ("dcasgd", "docs/guide/updaters.html"),
    ("ssp consistency", "docs/guide/tables.html"),
    ("MatrixTable", "reference/python/tables.html"),
    ("halo periodic", "docs/guide/halos.html"),
    ("init_process_group", "docs/guide/torch-distributed.html"),
    ("GradScaler overflow", "docs/guide/mixed-precision.html"),
    ("torch.compile no_sync", "docs/guide/mixed-precision.html"),
    ("DistributedDataParallel", "reference/python/torch.html"),
    ("ParameterManager sync", "reference/python/parameters.html"),
    ("make_train_function", "reference/python/functions.html"),
    ("unisono doctor", "docs/guide/install.html"),
    ("UNISONO_TIMEOUT", "docs/guide/when-things-go-wrong.html"),
    ("unisono_all_reduce", "reference/c.html"),
    ("MV_NewArrayTable", "reference/c-multiverso.html"),
    ("ArrayTableHandler", "reference/python/multiverso.html"),
    ("cloudpickle", "docs/guide/install.html"),
    ("shareProcessNamespace", "docs/guide/containers.html"),
    ("docker stop SIGTERM", "docs/guide/containers.html"),
    ("disable-auto-cleanup", "docs/guide/several-hosts.html"),
    ("Horovod", "docs/guide/why-not.html"),
]


def exported() -> dict[str, list[str]]:
    """Returns the names in the `__all__` of every public module, from the source."""
    modules = {}
    for path in sorted(PACKAGES.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGES).with_suffix("").parts).removesuffix(".__init__")
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                modules[module] = ast.literal_eval(statement.value)
    modules["unisono"] += modules.pop("unisono.collectives")
    return {module: names for module, names in modules.items() if module not in INTERNAL}


def documented() -> set[str]:
    """Returns the Python objects that the site's inventory lists."""
    data = (SITE / "objects.inv").read_bytes()
    lines = zlib.decompress(data.split(b"\n", 4)[4]).decode().splitlines()
    return {line.split(" py:")[0] for line in lines}


def test_every_public_name_has_an_entry() -> None:
    """A new public name needs an entry in scripts/site/python_reference.py."""
    names = {f"{module}.{name}" for module, names in exported().items() for name in names}
    assert len(names) > 100
    missing = sorted(names - documented())
    assert not missing, f"not in the reference: {missing}"


def test_every_function_of_the_headers_has_an_entry() -> None:
    """The pages of the C reference have every function that the headers declare."""
    for header, page in [("unisono.h", "c"), ("multiverso/c_api.h", "c-multiverso")]:
        text = (ROOT / "bindings/c/include" / header).read_text()
        names = set(re.findall(r"\b(unisono_\w+|MV_\w+)\(", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)))
        built = (SITE / f"reference/{page}.html").read_text()
        assert len(names) > 5
        assert not [name for name in sorted(names) if f'id="{name.lower()}"' not in built]


@pytest.mark.parametrize(("query", "page"), QUERIES)
def test_search(query: str, page: str) -> None:
    """The search index has a section of the page with all words of the query."""
    index = json.loads((SITE / "search/search_index.json").read_text())["docs"]
    words = query.lower().split()
    found = [
        entry["location"]
        for entry in index
        if all(word in f"{entry['title']} {entry['text']} {entry['location']}".lower() for word in words)
    ]
    assert any(location.partition("#")[0] == page for location in found), found


class Loads(HTMLParser):
    """Collects what a browser loads with a page; links that a reader follows do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records the addresses of a tag."""
        for name, value in attrs:
            loaded = name in {"src", "srcset", "data", "poster"} or (name == "href" and tag == "link")
            if loaded and value:
                self.addresses.append(value)


def test_pages_load_nothing_from_other_hosts() -> None:
    """Pages and style sheets name no other host for what they load."""
    pages = [page for page in SITE.rglob("*.html") if "rust" not in page.relative_to(SITE).parts]
    assert len(pages) > 50
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text())
        assert not [one for one in parser.addresses if re.match(r"(\w+:)?//", one)], page
        local = [one.partition("?")[0].partition("#")[0] for one in parser.addresses if ":" not in one]
        assert any(one.endswith(".css") for one in local), page
        folder = SITE if page.name == "404.html" else page.parent
        assert not [one for one in local if not (folder / one.lstrip("/")).exists()], page
    for sheet in SITE.glob("assets/**/*.css"):
        assert not re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']+", sheet.read_text()), sheet

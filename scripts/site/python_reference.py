"""The pages of the Python reference: which names of which modules are on which page.

A name of `unisono` must be in one of the lists; other modules are shown with all names of their `__all__`.
tests/site compares the built pages with every `__all__`.
"""

import ast
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent.parent / "bindings/python/python"

WORLD = ["init", "shutdown", "world", "empty", "pick_device", "__version__", "World", "Group", "Pending"]
VERBS = [
    "barrier",
    "broadcast",
    "scatter",
    "gather",
    "all_gather",
    "reduce",
    "all_reduce",
    "reduce_scatter",
    "scan",
    "exscan",
    "all_to_all",
    "send",
    "recv",
    "sendrecv",
    "broadcast_object",
    "all_gather_object",
    "gather_object",
    "scatter_object",
    "send_object",
    "recv_object",
]
TABLES = ["Table", "ArrayTable", "MatrixTable", "SparseMatrixTable", "KeyValueTable"]
TABLES += ["uniform", "normal", "flush", "finish", "save", "load"]
ERRORS = ["Error", "UsageError", "Timeout", "PeerLost", "IoError", "Unsupported", "InternalError"]
ERRORS += ["Missing", "Lost"]

# For each page: its title, a link to the guide, and its entries. An entry is a name, or a module and the
# names of its `__all__` that are not on the page already.
PAGES: dict[str, tuple[str, str, list[str | tuple[str, list[str]]]]] = {
    "world": (
        "World and collectives",
        "[Collectives](../../docs/guide/collectives.md), [launching](../../docs/guide/launching.md)",
        [f"unisono.{name}" for name in WORLD + VERBS],
    ),
    "tables": (
        "Tables",
        "[Tables](../../docs/guide/tables.md), [updaters](../../docs/guide/updaters.md)",
        [*(f"unisono.{name}" for name in TABLES), ("unisono.tables", TABLES)],
    ),
    "samples": (
        "Sparse samples",
        "[Click prediction](../../docs/guide/click-prediction.md)",
        [("unisono.samples", [])],
    ),
    "parameters": (
        "Parameter managers",
        "[Frameworks](../../docs/guide/frameworks.md)",
        ["unisono.ParameterManager", ("unisono.parameters", ["ParameterManager"])],
    ),
    "functions": (
        "Functions",
        "[Functions](../../docs/guide/functions.md)",
        ["unisono.local", ("unisono.functions", []), ("unisono.functions.updates", [])],
    ),
    "halo": (
        "Halos",
        "[Halos](../../docs/guide/halos.md)",
        [
            "unisono.Grid",
            "unisono.GlobalArray",
            "unisono.local_grid",
            ("unisono.halo", ["Grid", "GlobalArray", "local_grid"]),
        ],
    ),
    "errors": (
        "Errors",
        "[Questions and errors](../../docs/guide/faq.md), "
        "[when things go wrong](../../docs/guide/when-things-go-wrong.md)",
        [f"unisono.{name}" for name in ERRORS],
    ),
    "torch": (
        "PyTorch",
        "[Frameworks](../../docs/guide/frameworks.md), "
        "[from a PyTorch model to a grid](../../docs/guide/pytorch-on-a-grid.md)",
        [("unisono.torch", [])],
    ),
    "torch-distributed": (
        "PyTorch's process groups",
        "[PyTorch's process groups](../../docs/guide/torch-distributed.md)",
        [("unisono.torch.distributed", [])],
    ),
    "jax": ("JAX", "[JAX and Flax](../../docs/guide/jax-and-flax.md)", [("unisono.jax", [])]),
    "frameworks": (
        "Keras, PyTensor and Lasagne",
        "[Keras](../../docs/guide/keras-3.md), "
        "[PyTensor, Theano and Lasagne](../../docs/guide/pytensor-and-lasagne.md)",
        ["unisono.keras", "unisono.pytensor", "unisono.lasagne"],
    ),
    "multiverso": (
        "multiverso",
        "[Coming from Multiverso](../../docs/guide/coming-from-multiverso.md)",
        [
            ("multiverso", []),
            "multiverso.theano_ext.sharedvar",
            "multiverso.theano_ext.param_manager",
            "multiverso.theano_ext.lasagne_ext.param_manager",
            "multiverso.theano_ext.keras_ext.param_manager",
            "multiverso.theano_ext.keras_ext.callbacks",
        ],
    ),
    "synkhronos": (
        "synkhronos",
        "[Coming from Synkhronos](../../docs/guide/coming-from-synkhronos.md)",
        [("synkhronos", []), ("synkhronos.extensions.train", []), ("synkhronos.extensions.updates", [])],
    ),
}


def exported(module: str) -> list[str]:
    """Returns the names that the file of a module lists in its `__all__`."""
    path = PACKAGES / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


def description(module: str) -> str:
    """Returns a heading for a module, and the first line of its docstring."""
    options = "    options:\n      members: false\n      show_root_heading: false\n"
    return f"\n## `{module}`\n\n::: {module}\n{options}"


def pages() -> dict[str, str]:
    """Returns the text of each page, by its path on the site."""
    made = {}
    for name, (title, guide, entries) in PAGES.items():
        lines = [f"# {title}\n\nThe guide: {guide}.\n"]
        for entry in entries:
            if isinstance(entry, str):
                lines.append(f"\n::: {entry}\n")
                continue
            module, done = entry
            lines.append(description(module))
            lines += [f"\n::: {module}.{one}\n" for one in exported(module) if one not in done]
        made[f"reference/python/{name}.md"] = "".join(lines)
    rows = [
        f"| [{title}](python/{name}.md) | {guide.replace('../../', '../')} |"
        for name, (title, guide, _) in PAGES.items()
    ]
    made["reference/index.md"] = "\n".join(
        [
            "# Reference",
            "",
            "Generated from the docstrings of Python, the headers of C and the comments of Lua.",
            "",
            "| Python | the guide |",
            "|---|---|",
            *rows,
            "",
            "- C: [unisono.h](c.md), and [the functions of Multiverso](c-multiverso.md).",
            "- [Lua](lua.md).",
            "- [Rust](rust.md).",
            "",
        ]
    )
    return made

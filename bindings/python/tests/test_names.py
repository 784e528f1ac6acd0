"""Names of modules: none is also the name of a function or class of its package."""

import ast
from pathlib import Path

import numpy as np
import pytest

import unisono

ROOT = Path(unisono.__file__).parent.parent
PACKAGES = sorted(
    init.parent
    for name in ("unisono", "multiverso", "synkhronos")
    for init in (ROOT / name).rglob("__init__.py")
)


def names_of(package):
    """The names that a package has besides its modules: defined in its `__init__`, or imported there."""
    module = ".".join(package.relative_to(ROOT).parts)
    names = set()
    for statement in ast.walk(ast.parse((package / "__init__.py").read_text())):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.ImportFrom) and (statement.level, statement.module) != (0, module):
            names |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Constant) and isinstance(statement.value, str):
            names.add(statement.value)  # of `__all__`, or of a table of names that are imported on first use
    return names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: ".".join(path.relative_to(ROOT).parts))
def test_no_module_shares_its_name_with_another_name_of_its_package(package):
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    names = names_of(package)
    if package.name == "unisono":
        names |= set(unisono.collectives.__all__)
        names.discard("collectives")  # the module itself, which is imported for its `__all__`
    assert not modules & names


def test_world_is_the_function():
    import unisono.worlds

    assert callable(unisono.world) and unisono.world is unisono.worlds.world


def test_the_names_of_types_are_those_of_the_library():
    from typing import get_args

    from unisono.array_calls import ReduceOp
    from unisono.tables.names import Updater

    with pytest.raises(unisono.UsageError) as caught:
        unisono.init().all_reduce(np.zeros(1), "unknown")
    assert ", ".join(get_args(ReduceOp)) in str(caught.value)
    with pytest.raises(unisono.UsageError) as caught:
        unisono.ArrayTable(1, updater="unknown")
    names = str(caught.value).partition("expected")[2].partition("received")[0]
    known = [
        name for name in get_args(Updater) if name not in ("default", "nesterov_momentum", "momentum_sgd")
    ]
    assert all(name in names for name in known) and names.count(",") == len(known), names
    for updater in get_args(Updater):
        unisono.ArrayTable(1, updater=updater)
    for op in get_args(ReduceOp):
        integers = np.ones(2, dtype="int32")
        if op != "avg":
            assert unisono.all_reduce(integers, op).tolist() == [1, 1]

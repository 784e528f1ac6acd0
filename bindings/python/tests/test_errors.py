"""Exceptions can be sent between processes and copied, with all attributes."""

import copy
import inspect
import pickle

import pytest

import unisono as uni
from unisono import errors
from unisono.functions import errors as functions_errors

KINDS = [
    kind
    for module in (errors, functions_errors)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == module.__name__
]
ARGUMENTS = {"Interrupted": (), "Inactive": ("call", "advice")}
WAYS = [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy]


@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_exceptions_survive_a_copy(kind, again):
    error = kind(*ARGUMENTS.get(kind.__name__, ("text",)))
    error.rank, error.operation, error.lost = 3, "send", (uni.Lost(1, 7, "killed"),)
    found = again(error)
    assert type(found) is kind and found is not error
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("again", WAYS)
def test_errno_survives_a_copy(again):
    error = uni.IoError("no room")
    error.errno = 28
    assert again(error).errno == 28

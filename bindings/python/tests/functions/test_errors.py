"""Calls that cannot be right: the kind of exception, and what its message names."""

import numpy as np
import pytest
from refusing import refuses

from unisono import functions


@pytest.fixture
def f(pair):
    def weigh(x, y):
        return (x * y).sum(axis=0)

    return functions.function(weigh, "sum", bcast_inputs=["y"], name="weigh")


def test_nothing_works_without_workers():
    s = functions.shared([1.0], "s")
    for call in (
        lambda: functions.function(lambda x: x),
        lambda: functions.data([1.0]),
        functions.distribute,
        lambda: functions.broadcast(s),
        lambda: functions.scatter(s, [1.0]),
        lambda: functions.gather(s),
        lambda: functions.all_gather(s),
        lambda: functions.reduce(s),
        lambda: functions.all_reduce(s),
        lambda: functions.set_value(0, s, [1.0]),
        lambda: functions.get_value(0, s),
        lambda: functions.get_lengths(s),
        lambda: functions.get_shapes(s),
    ):
        with refuses(RuntimeError, "Cannot call", "inactive", "start()"):
            call()
    with pytest.warns(UserWarning, match="no workers"):
        functions.close()


def test_wrong_numbers_of_workers():
    with refuses(ValueError, "at least 1", "0"):
        functions.fork(0)
    with refuses(ValueError, "0 to 1", "2"):
        functions.fork(2, master_rank=2)
    with refuses(ValueError, "0 to 1", "-1"):
        functions.fork(2, master_rank=-1)


def test_functions_and_data_of_closed_workers(fork):
    fork(1)
    f, x = functions.function(lambda x: x.sum(), "sum"), functions.data(np.ones(2))
    functions.close()
    with refuses(RuntimeError, "inactive"):
        f(x)
    fork(1)
    with refuses(RuntimeError, "closed"):
        f(x)
    with refuses(RuntimeError, "input 0 (x)", "closed"):
        functions.function(lambda x: x.sum(), "sum")(x)


def test_a_second_fork(pair):
    with refuses(RuntimeError, "workers already"):
        functions.fork(2)


def test_what_functions_are_made_of(pair):
    with refuses(TypeError, "inputs", "list", "int"):
        functions.function(3)
    with refuses(TypeError, "bcast_inputs", "list", "str"):
        functions.function(lambda x: x, bcast_inputs="x")
    with refuses(ValueError, "bcast_inputs", "'x'", "'z'"):
        functions.function(lambda x: x, bcast_inputs=["z"])
    with refuses(ValueError, "output 1", "'avg'", "'mean'"):
        functions.function(lambda x: x, ["avg", "mean"])
    with refuses(ValueError, "update 0", "'avg'", "'mean'"):
        functions.function(lambda x, s: x, updates=[(functions.shared([1.0], "s"), "mean")])
    with refuses(TypeError, "shared variable", "ndarray"):
        functions.function(lambda x: x, shareds=[np.ones(2)])
    with refuses(ValueError, "framework", "numpy", "'cuda'"):
        functions.function(lambda x: x, framework="cuda")
    with refuses(TypeError, "named parameters", "*rows"):
        functions.function(lambda *rows: rows)
    with refuses(TypeError, "givens"):
        functions.function(lambda x: x, givens={})
    unused = functions.shared([1.0], "unused")
    for way in ("sliceable_shareds", "shareds", "updates"):
        with refuses(ValueError, way, "'x'", "'unused'", "position 0"):
            functions.function(lambda x: x, "avg", **{way: [unused]})


def test_what_graphs_are_made_of(pair):
    pytensor = pytest.importorskip("pytensor")
    pt = pytensor.tensor
    x, unused = pt.matrix("x"), pytensor.shared(np.ones(2), "unused")
    with refuses(ValueError, "output 0", "'avg'", "'mean'"):
        functions.function([x], (x.sum(), "mean"))
    with refuses(TypeError, "output 0", "pair", "3"):
        functions.function([x], (x.sum(), "sum", "avg"))
    with refuses(TypeError, "Cannot average integer dtype", "output 1", "int64"):
        functions.function([x], [x.sum(), x.shape[0]])
    with refuses(ValueError, "sliceable_shareds", "unused", "position 0"):
        functions.function([x], x.sum(), sliceable_shareds=[unused])
    with refuses(TypeError, "update 0", "shared variable"):
        functions.function([x], updates=[(x, x)])
    with refuses(TypeError, "update 0", "(variable, expression)"):
        functions.function([x], updates=[(unused,)])
    with pytest.deprecated_call(match="'c_sum' is deprecated; use 'sum'"):
        f = functions.function([x], (x.sum(), "c_sum"), name="total")
    assert f.output_modes == ["sum"]
    with refuses(TypeError, "total", "input 0 (x)", "float64 with 2", "float32 with 2"):
        f(functions.data(np.ones((2, 2), "float32")))
    with refuses(TypeError, "total", "input 0 (x)", "float64 with 2", "float64 with 1"):
        f(functions.data(np.ones(2)))


def test_inputs_of_a_call(f):
    x, y = functions.data(np.ones((4, 2))), functions.data(np.ones(2))
    with refuses(TypeError, "weigh", "2 inputs", "received 1"):
        f(x)
    with refuses(TypeError, "weigh", "2 inputs", "received 3"):
        f(x, y, y)
    with refuses(TypeError, "input 1 (y)", "Data or a NumPy array", "list"):
        f(x, [1.0, 1.0])
    assert f(x, np.ones(2)).tolist() == [4, 4]
    with refuses(ValueError, "unknown name", "'z'"):
        f(x, z=y)
    with refuses(ValueError, "'x'", "twice"):
        f(x, x=x)
    assert f(y=y, x=x).tolist() == [4, 4]
    assert f(x, y=y).tolist() == [4, 4]


def test_options_of_a_call(f):
    x, y = functions.data(np.ones((4, 2))), functions.data(np.ones(2))
    for wrong in (0, -1, 1.5, "2", True):
        with refuses(ValueError, "num_slices", "from 1 up", repr(wrong)):
            f(x, y, num_slices=wrong)
    with refuses(ValueError, "num_slices", "neither"):
        functions.function(lambda: None)(num_slices=2)
    with refuses(TypeError, "shared_batch", "without"):
        f(x, y, shared_batch=slice(0, 2))
    with refuses(TypeError, "output_subset", "list", "0"):
        f(x, y, output_subset=0)
    with refuses(TypeError, "output_subset", "1.5"):
        f(x, y, output_subset=[1.5])
    with refuses(ValueError, "output_subset", "0 to 0", "1"):
        f(x, y, output_subset=[1])
    assert f(x, y, output_subset=[0, 0]).tolist() == [4, 4]


def test_batches_of_a_call(f):
    x, y = functions.data(np.ones((4, 2))), functions.data(np.ones(2))
    for batch, words in [
        (5, ["below 4", "input x", "row 4"]),
        (slice(2, 5), ["below 4", "row 4"]),
        ([0, 4], ["below 4", "row 4"]),
        ([-1], ["from 0 up", "-1"]),
        (0, ["at least one", "0"]),
        (slice(-2, 3), ["slice(-2, 3"]),
        (slice(0, 4, 2), ["no step"]),
        (slice(0, 0), ["above 0"]),
        (np.array([2**64 - 1], "uint64"), ["below 2**63", str(2**64 - 1)]),
    ]:
        with refuses(ValueError, "batch", *words):
            f(x, y, batch=batch)
    for batch in ([0.5], [[0]], "all", slice(0, 2.9), slice(0.0, 2), slice(True, 2)):
        with refuses(TypeError, "batch", "whole numbers"):
            f(x, y, batch=batch)
    assert f(x, y, batch=[3, 3, 3]).tolist() == [3, 3], "the last row is a row"
    both = functions.function(lambda x, w: (x[:, 0] * w).sum(), "sum")
    with refuses(ValueError, "one length", "[4, 3]"):
        both(x, functions.data(np.ones(3)))
    with refuses(ValueError, "input 1 (w)", "minibatch", "at least 4", "3"):
        both(x, functions.data(np.ones(3), minibatch=True), batch=4)
    with refuses(TypeError, "input 1 (w)", "axis"):
        both(x, functions.data(3.0))
    with refuses(ValueError, "scattered inputs"):
        functions.function(lambda: None)(batch=3)


def test_rows_that_workers_do_not_have(pair):
    s, t = functions.shared(np.zeros(1), "s"), functions.shared(np.zeros(1), "t")
    f = functions.function(lambda s, t: (s * t).sum(), "sum", sliceable_shareds=[s, t])
    g = functions.function(lambda x, s: (x * s).sum(), "sum", sliceable_shareds=[s])
    functions.scatter([s, t], [np.ones(5), np.ones(5)])
    assert functions.get_lengths(s) == [3, 2]
    with refuses(ValueError, "worker 1", "below 2", "s", "row 2"):
        f(shared_batch=slice(0, 3))
    with refuses(ValueError, "worker 1", "below 2", "row 2"):
        f(shared_batch=[0, 2])
    for wrong in ([slice(0, 1)], [slice(0, 1)] * 3, [slice(0, 1), [0]]):
        with refuses(TypeError, "shared_batch", "each of 2 workers"):
            f(shared_batch=wrong)
    with refuses(ValueError, "shared_batch", "below 2**63"):
        f(shared_batch=np.array([2**64 - 1], "uint64"))
    with refuses(TypeError, "shared_batch", "whole numbers", "1.5"):
        f(shared_batch=slice(0, 1.5))
    assert f(shared_batch=[[0, 2], [1]]) == 3
    functions.set_value(1, t, np.ones(7))
    with refuses(ValueError, "worker 1", "one length", "s 2", "t 7"):
        f()
    with refuses(ValueError, "worker", "scattered rows", "shared_batch"):
        g(functions.data(np.ones(4)))
    assert g(functions.data(np.ones(4)), shared_batch=slice(0, 2)) == 4


def test_outputs_that_do_not_fit(pair):
    x = functions.data(np.arange(3.0))
    with refuses(ValueError, "output 0", "one type and shape", "(1,)", "(2,)"):
        functions.function(lambda x: x, "sum")(x)
    with refuses(ValueError, "output 0", "axis"):
        functions.function(lambda x: x.sum(), "gather")(x)
    with refuses(TypeError, "Cannot average integer dtype", "output 0", "int64"):
        functions.function(lambda x: np.array([1]), "avg")(x)
    with refuses(TypeError, "1 outputs", "received 2"):
        functions.function(lambda x: (x, x), "sum")(x)
    with refuses(TypeError, "0 outputs", "received 1"):
        functions.function(lambda x: x)(x)
    with refuses(ValueError, "updated", "'t'"):
        functions.function(lambda x: functions.updated(t=x))(x)


def test_what_is_not_a_number(pair):
    x = functions.data(np.arange(3.0))
    for value in (np.array(["a"]), [None], np.zeros(2, "V4")):
        with refuses(TypeError, "output 0", "numbers"):
            functions.function(lambda x, value=value: value, "gather")(x)
    with refuses(TypeError, "data 'names'", "numbers", "<U"):
        functions.data(["one"], name="names")
    names = functions.shared(["one"], "names")
    functions.function(lambda names: None, shareds=[names])
    with refuses(TypeError, "gather", "position 0", "numbers"):
        functions.gather(names)
    anything = functions.function(lambda x: "what", [None])
    assert anything(x) == ["what"]


def test_collectives(pair):
    s, t, stranger = (functions.shared(np.ones(2), name) for name in ("s", "t", "stranger"))
    whole = functions.shared(np.ones(2, int), "whole")
    functions.function(lambda s, t, whole: None, shareds=[s, t, whole])
    with refuses(ValueError, "some function uses", "stranger", "position 1"):
        functions.gather([s, stranger])
    with refuses(ValueError, "Redundant variables"):
        functions.gather([s, s])
    with refuses(ValueError, "nd_up", "2"):
        functions.gather(s, nd_up=2)
    with refuses(TypeError, "shared variable", "int"):
        functions.gather(3)
    for verb in (functions.reduce, functions.all_reduce):
        with refuses(ValueError, "avg, sum, prod, max, min", "'mean'"):
            verb(s, "mean")
        with refuses(TypeError, "floating point", "int64", "whole"):
            verb(whole)
    with refuses(ValueError, "rank from 0 to 1", "2"):
        functions.get_value(2, s)
    with refuses(ValueError, "rank from 0 to 1", "-1"):
        functions.set_value(-1, s, np.ones(2))
    for wrong in (1.0, 0.5, "1", True, None):
        with refuses(TypeError, "get_value", "rank as a whole number", repr(wrong)):
            functions.get_value(wrong, s)
        with refuses(TypeError, "set_value", "rank as a whole number", repr(wrong)):
            functions.set_value(wrong, s, np.zeros(2))
    assert functions.get_value(np.int64(1), s).tolist() == [1, 1]
    with refuses(TypeError, "s expected float64 with 1", "float64 with 2"):
        functions.broadcast(s, np.ones((2, 2)))
    with refuses(TypeError, "s expected float64 with 1", "float32 with 1"):
        functions.scatter(s, np.ones(2, "float32"))
    with refuses(TypeError, "t expected float64 with 1", "float32 with 1"):
        functions.broadcast([s, t], [np.zeros(2), np.zeros(2, "float32")])
    assert functions.gather(s).tolist() == [[1, 1], [1, 1]]
    with refuses(ValueError, "2 values", "1"):
        functions.broadcast([s, t], [np.ones(2)])
    with refuses(ValueError, "one length"):
        functions.scatter([s, t], [np.ones(2), np.ones(3)])
    with refuses(ValueError, "rows below 2", "row 4"):
        functions.set_value(1, s, np.ones(2), batch=5)
    functions.set_value(1, s, np.ones(3))
    with refuses(ValueError, "all_reduce", "s", "(2,)", "(3,)"):
        functions.all_reduce(s)
    functions.set_value(1, s, np.full(2, 3.0))
    functions.all_reduce(s)
    assert functions.gather(s).tolist() == [[2, 2], [2, 2]], "errors changed nothing"


def test_calls_without_rows_change_nothing(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    x, y = functions.data(np.ones((8, 2), "float32")), functions.data(np.ones((8, 1), "float32"))

    def loss(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    own = [
        functions.shared(np.ones((1, 2), "float32"), "x"),
        functions.shared(np.ones((1, 1), "float32"), "y"),
    ]
    for weighted in (True, False):
        step = functions.make_train_function(loss, model, None, None, "sgd", 0.1, weighted=weighted)
        held = functions.make_train_function(loss, model, *own, "sgd", 0.1, weighted=weighted)
        before = model.weight.detach().numpy().copy()
        for batch in ([], slice(3, 3), 0):
            with refuses(ValueError, "batch", "at least one row"):
                step(x, y, batch=batch)
        for shared_batch in ([], [[], []], slice(1, 1), [slice(0, 0), slice(2, 2)]):
            with refuses(ValueError, "shared_batch"):
                held(shared_batch=shared_batch)
        nothing = [functions.data(np.ones((0, columns), "float32")) for columns in (2, 1)]
        with refuses(ValueError, "gradient of loss", "at least one row"):
            step(*nothing)
        functions.scatter(own, [np.ones((0, 2), "float32"), np.ones((0, 1), "float32")])
        with refuses(ValueError, "gradient of loss", "at least one row"):
            held()
        functions.scatter(own, [np.ones((4, 2), "float32"), np.ones((4, 1), "float32")])
        np.testing.assert_array_equal(functions.gather(model.weight), [before, before])
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(0))) == 0, "a sum of nothing"


def test_updates_and_names_of_shared_arrays(pair):
    w, twin, x = functions.shared(np.zeros(2), "w"), functions.shared(np.zeros(2), "w"), functions.data([1.0])
    f = functions.function(lambda x, w: functions.updated(x.sum(), w=np.zeros((3, 3))), "sum", updates=[w])
    with refuses(ValueError, "updated", "w", "1 axes", "2"):
        f(x)
    assert w.get_value().tolist() == [0, 0]
    with refuses(ValueError, "one shared array for each name", "'w'"):
        functions.function(lambda w: None, shareds=[w, twin])


def test_what_training_functions_are_made_of(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    images = functions.shared(np.ones((1, 2), "float32"), "images")
    with refuses(ValueError, "x and y", "'x'", "'images'"):
        functions.make_train_function(lambda x: model(x).mean(), model, images, None, "sgd", 0.1)
    with refuses(TypeError, "sgd", "learning_rate", "number", "str"):
        functions.make_train_function(lambda x: model(x).mean(), model, None, None, "sgd", "0.1")
    with refuses(ValueError, "params", "gradient", "2"):
        frozen = torch.nn.Linear(2, 1).requires_grad_(False)
        functions.make_train_function(lambda x: model(x).mean(), frozen, None, None, "sgd", 0.1)
    other = torch.nn.Linear(2, 1)
    step = functions.make_train_function(lambda x: model(x).mean(), other, None, None, "sgd", 0.1)
    with refuses(Exception, "uses none of them", "make the training function again"):
        step(functions.data(np.ones((4, 2), "float32")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refuses(ValueError, "broadcast", "none in SGD", "module"):
        functions.broadcast(optimizer)


def test_losses_that_have_no_gradient(pair):
    pytest.importorskip("jax")
    w = functions.shared(np.zeros(2, "float32"), "w")

    def loss(x, w):
        return np.square(np.dot(x, w) - 1).mean()

    step = functions.make_train_function(loss, [w], None, None, "sgd", 0.1)
    with refuses(TypeError, "loss", "jax.numpy", "computes with NumPy", "jnp for np"):
        step(functions.data(np.ones((4, 2), "float32")))
    assert w.get_value().tolist() == [0, 0]


def test_whole_numbers_of_modules(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    functions.function(lambda x: model(x), shareds=[model])
    counter = model[1].num_batches_tracked
    with refuses(TypeError, "1.num_batches_tracked of Sequential", "leave it out"):
        functions.all_reduce(list(model.buffers()))
    functions.set_value(1, counter, np.int64(7))
    functions.set_value(1, model[1].running_mean, np.ones(2, "float32"))
    assert len(functions.reduce(model, in_place=False)) == 7 and functions.get_value(1, counter) == 7
    functions.all_reduce(model)
    assert functions.gather(counter).tolist() == [0, 0]
    assert functions.gather(model[1].running_mean).tolist() == [[0.5, 0.5]] * 2


def test_numbers_of_workers_are_whole():
    for wrong in ("3", 2.0, True):
        with refuses(TypeError, "start", "whole number", repr(wrong)):
            functions.fork(wrong)
    for wrong in ("1", 1.0, True, None):
        with refuses(TypeError, "start", "whole number", "master_rank", repr(wrong)):
            functions.fork(2, master_rank=wrong)

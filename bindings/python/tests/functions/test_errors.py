"""Incorrect calls: the kind of exception, and the words of its message."""

import numpy as np
import pytest
from rejecting import rejects

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
        with rejects(RuntimeError, "Cannot call", "inactive", "start()"):
            call()
    with pytest.warns(UserWarning, match="no workers"):
        functions.close()


def test_wrong_numbers_of_workers():
    with rejects(ValueError, "at least 1", "0"):
        functions.fork(0)
    with rejects(ValueError, "0 to 1", "2"):
        functions.fork(2, master_rank=2)
    with rejects(ValueError, "0 to 1", "-1"):
        functions.fork(2, master_rank=-1)


def test_functions_and_data_of_closed_workers(fork):
    fork(1)
    f, x = functions.function(lambda x: x.sum(), "sum"), functions.data(np.ones(2))
    functions.close()
    with rejects(RuntimeError, "inactive"):
        f(x)
    fork(1)
    with rejects(RuntimeError, "closed"):
        f(x)
    with rejects(RuntimeError, "input 0 (x)", "closed"):
        functions.function(lambda x: x.sum(), "sum")(x)


def test_a_second_fork(pair):
    with rejects(RuntimeError, "workers already"):
        functions.fork(2)


def test_wrong_arguments_of_function(pair):
    with rejects(TypeError, "inputs", "list", "int"):
        functions.function(3)
    with rejects(TypeError, "bcast_inputs", "list", "str"):
        functions.function(lambda x: x, bcast_inputs="x")
    with rejects(ValueError, "bcast_inputs", "'x'", "'z'"):
        functions.function(lambda x: x, bcast_inputs=["z"])
    with rejects(ValueError, "output 1", "'avg'", "'mean'"):
        functions.function(lambda x: x, ["avg", "mean"])
    with rejects(ValueError, "update 0", "'avg'", "'mean'"):
        functions.function(lambda x, s: x, updates=[(functions.shared([1.0], "s"), "mean")])
    with rejects(TypeError, "shared variable", "ndarray"):
        functions.function(lambda x: x, shareds=[np.ones(2)])
    with rejects(ValueError, "framework", "numpy", "'cuda'"):
        functions.function(lambda x: x, framework="cuda")
    with rejects(TypeError, "named parameters", "*rows"):
        functions.function(lambda *rows: rows)
    with rejects(TypeError, "givens"):
        functions.function(lambda x: x, givens={})
    unused = functions.shared([1.0], "unused")
    for way in ("sliceable_shareds", "shareds", "updates"):
        with rejects(ValueError, way, "'x'", "'unused'", "position 0"):
            functions.function(lambda x: x, "avg", **{way: [unused]})


def test_wrong_arguments_of_graphs(pair):
    pytensor = pytest.importorskip("pytensor")
    pt = pytensor.tensor
    x, unused = pt.matrix("x"), pytensor.shared(np.ones(2), "unused")
    with rejects(ValueError, "output 0", "'avg'", "'mean'"):
        functions.function([x], (x.sum(), "mean"))
    with rejects(TypeError, "output 0", "pair", "3"):
        functions.function([x], (x.sum(), "sum", "avg"))
    with rejects(TypeError, "Cannot average integer dtype", "output 1", "int64"):
        functions.function([x], [x.sum(), x.shape[0]])
    with rejects(ValueError, "sliceable_shareds", "unused", "position 0"):
        functions.function([x], x.sum(), sliceable_shareds=[unused])
    with rejects(TypeError, "update 0", "shared variable"):
        functions.function([x], updates=[(x, x)])
    with rejects(TypeError, "update 0", "(variable, expression)"):
        functions.function([x], updates=[(unused,)])
    with pytest.deprecated_call(match="'c_sum' is deprecated; use 'sum'"):
        f = functions.function([x], (x.sum(), "c_sum"), name="total")
    assert f.output_modes == ["sum"]
    with rejects(TypeError, "total", "input 0 (x)", "float64 with 2", "float32 with 2"):
        f(functions.data(np.ones((2, 2), "float32")))
    with rejects(TypeError, "total", "input 0 (x)", "float64 with 2", "float64 with 1"):
        f(functions.data(np.ones(2)))


def test_wrong_inputs_of_a_call(f):
    x, y = functions.data(np.ones((4, 2))), functions.data(np.ones(2))
    with rejects(TypeError, "weigh", "2 inputs", "received 1"):
        f(x)
    with rejects(TypeError, "weigh", "2 inputs", "received 3"):
        f(x, y, y)
    with rejects(TypeError, "input 1 (y)", "Data or a NumPy array", "list"):
        f(x, [1.0, 1.0])
    assert f(x, np.ones(2)).tolist() == [4, 4]
    with rejects(ValueError, "unknown name", "'z'"):
        f(x, z=y)
    with rejects(ValueError, "'x'", "twice"):
        f(x, x=x)
    assert f(y=y, x=x).tolist() == [4, 4]
    assert f(x, y=y).tolist() == [4, 4]


def test_wrong_options_of_a_call(f):
    x, y = functions.data(np.ones((4, 2))), functions.data(np.ones(2))
    for wrong in (0, -1, 1.5, "2", True):
        with rejects(ValueError, "num_slices", "from 1 up", repr(wrong)):
            f(x, y, num_slices=wrong)
    with rejects(ValueError, "num_slices", "neither"):
        functions.function(lambda: None)(num_slices=2)
    with rejects(TypeError, "shared_batch", "without"):
        f(x, y, shared_batch=slice(0, 2))
    with rejects(TypeError, "output_subset", "list", "0"):
        f(x, y, output_subset=0)
    with rejects(TypeError, "output_subset", "1.5"):
        f(x, y, output_subset=[1.5])
    with rejects(ValueError, "output_subset", "0 to 0", "1"):
        f(x, y, output_subset=[1])
    assert f(x, y, output_subset=[0, 0]).tolist() == [4, 4]


def test_wrong_batches_of_a_call(f):
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
        with rejects(ValueError, "batch", *words):
            f(x, y, batch=batch)
    for batch in ([0.5], [[0]], "all", slice(0, 2.9), slice(0.0, 2), slice(True, 2)):
        with rejects(TypeError, "batch", "whole numbers"):
            f(x, y, batch=batch)
    assert f(x, y, batch=[3, 3, 3]).tolist() == [3, 3], "the last row is a row"
    both = functions.function(lambda x, w: (x[:, 0] * w).sum(), "sum")
    with rejects(ValueError, "one length", "[4, 3]"):
        both(x, functions.data(np.ones(3)))
    with rejects(ValueError, "input 1 (w)", "minibatch", "at least 4", "3"):
        both(x, functions.data(np.ones(3), minibatch=True), batch=4)
    with rejects(TypeError, "input 1 (w)", "axis"):
        both(x, functions.data(3.0))
    with rejects(ValueError, "scattered inputs"):
        functions.function(lambda: None)(batch=3)


def test_rows_out_of_range(pair):
    s, t = functions.shared(np.zeros(1), "s"), functions.shared(np.zeros(1), "t")
    f = functions.function(lambda s, t: (s * t).sum(), "sum", sliceable_shareds=[s, t])
    g = functions.function(lambda x, s: (x * s).sum(), "sum", sliceable_shareds=[s])
    functions.scatter([s, t], [np.ones(5), np.ones(5)])
    assert functions.get_lengths(s) == [3, 2]
    with rejects(ValueError, "worker 1", "below 2", "s", "row 2"):
        f(shared_batch=slice(0, 3))
    with rejects(ValueError, "worker 1", "below 2", "row 2"):
        f(shared_batch=[0, 2])
    for wrong in ([slice(0, 1)], [slice(0, 1)] * 3, [slice(0, 1), [0]]):
        with rejects(TypeError, "shared_batch", "each of 2 workers"):
            f(shared_batch=wrong)
    with rejects(ValueError, "shared_batch", "below 2**63"):
        f(shared_batch=np.array([2**64 - 1], "uint64"))
    with rejects(TypeError, "shared_batch", "whole numbers", "1.5"):
        f(shared_batch=slice(0, 1.5))
    assert f(shared_batch=[[0, 2], [1]]) == 3
    functions.set_value(1, t, np.ones(7))
    with rejects(ValueError, "worker 1", "one length", "s 2", "t 7"):
        f()
    with rejects(ValueError, "worker", "scattered rows", "shared_batch"):
        g(functions.data(np.ones(4)))
    assert g(functions.data(np.ones(4)), shared_batch=slice(0, 2)) == 4


def test_outputs_of_wrong_shapes(pair):
    x = functions.data(np.arange(3.0))
    with rejects(ValueError, "output 0", "one type and shape", "(1,)", "(2,)"):
        functions.function(lambda x: x, "sum")(x)
    with rejects(ValueError, "output 0", "axis"):
        functions.function(lambda x: x.sum(), "gather")(x)
    with rejects(TypeError, "Cannot average integer dtype", "output 0", "int64"):
        functions.function(lambda x: np.array([1]), "avg")(x)
    with rejects(TypeError, "1 outputs", "received 2"):
        functions.function(lambda x: (x, x), "sum")(x)
    with rejects(TypeError, "0 outputs", "received 1"):
        functions.function(lambda x: x)(x)
    with rejects(ValueError, "updated", "'t'"):
        functions.function(lambda x: functions.updated(t=x))(x)


def test_non_numeric_values(pair):
    x = functions.data(np.arange(3.0))
    for value in (np.array(["a"]), [None], np.zeros(2, "V4")):
        with rejects(TypeError, "output 0", "numbers"):
            functions.function(lambda x, value=value: value, "gather")(x)
    with rejects(TypeError, "data 'names'", "numbers", "<U"):
        functions.data(["one"], name="names")
    names = functions.shared(["one"], "names")
    functions.function(lambda names: None, shareds=[names])
    with rejects(TypeError, "gather", "position 0", "numbers"):
        functions.gather(names)
    anything = functions.function(lambda x: "what", [None])
    assert anything(x) == ["what"]


def test_wrong_arguments_of_collectives(pair):
    s, t, stranger = (functions.shared(np.ones(2), name) for name in ("s", "t", "stranger"))
    whole = functions.shared(np.ones(2, int), "whole")
    functions.function(lambda s, t, whole: None, shareds=[s, t, whole])
    with rejects(ValueError, "some function uses", "stranger", "position 1"):
        functions.gather([s, stranger])
    with rejects(ValueError, "Redundant variables"):
        functions.gather([s, s])
    with rejects(ValueError, "nd_up", "2"):
        functions.gather(s, nd_up=2)
    with rejects(TypeError, "shared variable", "int"):
        functions.gather(3)
    for verb in (functions.reduce, functions.all_reduce):
        with rejects(ValueError, "avg, sum, prod, max, min", "'mean'"):
            verb(s, "mean")
        with rejects(TypeError, "floating point", "int64", "whole"):
            verb(whole)
    with rejects(ValueError, "rank from 0 to 1", "2"):
        functions.get_value(2, s)
    with rejects(ValueError, "rank from 0 to 1", "-1"):
        functions.set_value(-1, s, np.ones(2))
    for wrong in (1.0, 0.5, "1", True, None):
        with rejects(TypeError, "get_value", "rank as a whole number", repr(wrong)):
            functions.get_value(wrong, s)
        with rejects(TypeError, "set_value", "rank as a whole number", repr(wrong)):
            functions.set_value(wrong, s, np.zeros(2))
    assert functions.get_value(np.int64(1), s).tolist() == [1, 1]
    with rejects(TypeError, "s expected float64 with 1", "float64 with 2"):
        functions.broadcast(s, np.ones((2, 2)))
    with rejects(TypeError, "s expected float64 with 1", "float32 with 1"):
        functions.scatter(s, np.ones(2, "float32"))
    with rejects(TypeError, "t expected float64 with 1", "float32 with 1"):
        functions.broadcast([s, t], [np.zeros(2), np.zeros(2, "float32")])
    assert functions.gather(s).tolist() == [[1, 1], [1, 1]]
    with rejects(ValueError, "2 values", "1"):
        functions.broadcast([s, t], [np.ones(2)])
    with rejects(ValueError, "one length"):
        functions.scatter([s, t], [np.ones(2), np.ones(3)])
    with rejects(ValueError, "rows below 2", "row 4"):
        functions.set_value(1, s, np.ones(2), batch=5)
    functions.set_value(1, s, np.ones(3))
    with rejects(ValueError, "all_reduce", "s", "(2,)", "(3,)"):
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
            with rejects(ValueError, "batch", "at least one row"):
                step(x, y, batch=batch)
        for shared_batch in ([], [[], []], slice(1, 1), [slice(0, 0), slice(2, 2)]):
            with rejects(ValueError, "shared_batch"):
                held(shared_batch=shared_batch)
        nothing = [functions.data(np.ones((0, columns), "float32")) for columns in (2, 1)]
        with rejects(ValueError, "gradient of loss", "at least one row"):
            step(*nothing)
        functions.scatter(own, [np.ones((0, 2), "float32"), np.ones((0, 1), "float32")])
        with rejects(ValueError, "gradient of loss", "at least one row"):
            held()
        functions.scatter(own, [np.ones((4, 2), "float32"), np.ones((4, 1), "float32")])
        np.testing.assert_array_equal(functions.gather(model.weight), [before, before])
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(0))) == 0, "a sum of nothing"


def test_updates_and_names_of_shared_arrays(pair):
    w, twin, x = functions.shared(np.zeros(2), "w"), functions.shared(np.zeros(2), "w"), functions.data([1.0])
    f = functions.function(lambda x, w: functions.updated(x.sum(), w=np.zeros((3, 3))), "sum", updates=[w])
    with rejects(ValueError, "updated", "w", "1 axes", "2"):
        f(x)
    assert w.get_value().tolist() == [0, 0]
    with rejects(ValueError, "one shared array for each name", "'w'"):
        functions.function(lambda w: None, shareds=[w, twin])


def test_wrong_arguments_of_training_functions(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    images = functions.shared(np.ones((1, 2), "float32"), "images")
    with rejects(ValueError, "x and y", "'x'", "'images'"):
        functions.make_train_function(lambda x: model(x).mean(), model, images, None, "sgd", 0.1)
    with rejects(TypeError, "sgd", "lr", "number", "str"):
        functions.make_train_function(lambda x: model(x).mean(), model, None, None, "sgd", "0.1")
    with rejects(ValueError, "params", "gradient", "2"):
        frozen = torch.nn.Linear(2, 1).requires_grad_(False)
        functions.make_train_function(lambda x: model(x).mean(), frozen, None, None, "sgd", 0.1)
    other = torch.nn.Linear(2, 1)
    step = functions.make_train_function(lambda x: model(x).mean(), other, None, None, "sgd", 0.1)
    with rejects(Exception, "uses none of them", "make the training function again"):
        step(functions.data(np.ones((4, 2), "float32")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with rejects(ValueError, "broadcast", "none in SGD", "module"):
        functions.broadcast(optimizer)


def test_losses_without_a_gradient(pair):
    pytest.importorskip("jax")
    w = functions.shared(np.zeros(2, "float32"), "w")

    def loss(x, w):
        return np.square(np.dot(x, w) - 1).mean()

    step = functions.make_train_function(loss, [w], None, None, "sgd", 0.1)
    with rejects(TypeError, "loss", "jax.numpy", "computes with NumPy", "jnp for np"):
        step(functions.data(np.ones((4, 2), "float32")))
    assert w.get_value().tolist() == [0, 0]


def test_integer_tensors_of_modules(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    functions.function(lambda x: model(x), shareds=[model])
    counter = model[1].num_batches_tracked
    with rejects(TypeError, "1.num_batches_tracked of Sequential", "leave it out"):
        functions.all_reduce(list(model.buffers()))
    functions.set_value(1, counter, np.int64(7))
    functions.set_value(1, model[1].running_mean, np.ones(2, "float32"))
    assert len(functions.reduce(model, in_place=False)) == 7 and functions.get_value(1, counter) == 7
    functions.all_reduce(model)
    assert functions.gather(counter).tolist() == [0, 0]
    assert functions.gather(model[1].running_mean).tolist() == [[0.5, 0.5]] * 2


def test_numbers_of_workers_are_integers():
    for wrong in ("3", 2.0, True):
        with rejects(TypeError, "start", "whole number", repr(wrong)):
            functions.fork(wrong)
    for wrong in ("1", 1.0, True, None):
        with rejects(TypeError, "start", "whole number", "master_rank", repr(wrong)):
            functions.fork(2, master_rank=wrong)

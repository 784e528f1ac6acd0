"""Effects of calls: variables that several functions share, and updates, with and without slices."""

import numpy as np
import pytest

from unisono import functions


def test_results_belong_to_the_caller(pair):
    kept = np.ones(3)
    f = functions.function(lambda x: kept, "sum")
    x = functions.data(np.ones(2))
    first = f(x)
    first[...] = 7
    assert f(x).tolist() == [2, 2, 2] and kept.tolist() == [1, 1, 1]


def test_inputs_are_neither_kept_nor_changed(kind, pair):
    """Neither the arrays passed to `alone` nor the memory of Data is kept or changed."""
    s = kind.shared(np.zeros(2, "float32"), "s")
    if type(kind).__name__ == "Pytensor":
        import pytensor.tensor as pt

        x = pt.fvector("x")
        f = functions.function([x], (x, "gather"), updates=[(s, x)])
    else:
        f = functions.function(
            lambda x, s: functions.updated(x, s=x), "gather", updates=[s], **kind.options()
        )
    own = np.arange(2, dtype="float32")
    output = f.alone(own)
    own += 10
    assert s.get_value().tolist() == [0, 1]
    x = functions.data(np.arange(4, dtype="float32"))
    output = f(x)
    x[...] = 7
    assert output.tolist() == [0, 1, 2, 3]
    assert functions.gather(s, nd_up=0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["avg", "sum", "max"])
def test_updates_of_slices_start_from_the_original(kind, pair, mode):
    """Every slice sees the value before the call; the results are combined by the update's mode."""
    values = np.arange(1.0, 13).reshape(6, 2).astype("float32")
    s = kind.shared(np.ones(2, "float32"), "s")
    if type(kind).__name__ == "Pytensor":
        import pytensor.tensor as pt

        x = pt.fmatrix("x")
        f = functions.function([x], (x.sum(), "sum"), updates=[(s, (x * s).sum(axis=0) + s, mode)])
    else:
        f = functions.function(
            lambda x, s: functions.updated(x.sum(), s=(x * s).sum(0) + s),
            "sum",
            updates=[(s, mode)],
            **kind.options(),
        )
    assert f.update_modes == [mode]
    x = functions.data(values)
    assert f(x, num_slices=3) == values.sum()
    fold = {"avg": np.mean, "sum": np.sum, "max": np.max}[mode]
    expected = [fold([row + 1 for row in part], axis=0) for part in np.split(values, 2)]
    np.testing.assert_allclose(functions.gather(s), expected)


def test_a_failing_slice_changes_nothing(pair):
    s = functions.shared(np.ones(2), "s")

    def step(x, s):
        if x[0] == 7:
            raise ValueError("seven")
        return functions.updated(s=s + x[0])

    f = functions.function(step, updates=[s])
    with pytest.raises(functions.WorkerError, match="seven"):
        f(functions.data(np.array([1.0, 2, 6, 7])), num_slices=2)
    assert functions.get_value(1, s).tolist() == [1, 1]


def test_counters_and_random_streams_survive_slices(pair):
    pytensor = pytest.importorskip("pytensor")
    pt = pytensor.tensor
    x, count = pt.vector("x"), pytensor.shared(np.int64(0), "count")
    generator = pytensor.shared(np.random.default_rng(1), "generator")
    after, noise = pt.random.normal(rng=generator, size=(), return_next_rng=True)
    f = functions.function(
        [x],
        [(x.sum() + noise - noise, "sum"), (noise[None], "gather")],
        updates={count: count + 1, generator: after},
    )
    data = functions.data(np.arange(6.0))
    total, first = f(data, num_slices=3)
    np.testing.assert_allclose(total, 15)
    assert len(set(first[:3])) == 3, "each slice draws its own number"
    assert functions.gather(count).tolist() == [1, 1]
    f(data)
    assert functions.gather(count).tolist() == [2, 2]


def test_initial_values_are_copied(pair):
    first = np.ones(2)
    s = functions.shared(first, "s")
    functions.function(lambda s: None, shareds=[s])
    functions.all_reduce(s, "sum")
    assert s.get_value().tolist() == [2, 2] and first.tolist() == [1, 1]


def test_functions_added_later_share_variables(pair):
    s = functions.shared(np.zeros(2), "s")
    add = functions.function(lambda x, s: functions.updated(s=s + x.sum(axis=0)), updates=[s])
    x = functions.data(np.ones((4, 2)))
    add(x)
    double = functions.function(lambda s: functions.updated(s=s * 2), updates=[s])
    double()
    add(x)
    functions.distribute()
    functions.distribute()
    assert functions.gather(s).tolist() == [[6, 6], [6, 6]]


def test_modules_are_shared_by_the_functions_that_use_them(pair):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def learn(x):
        optimizer.zero_grad()
        loss = model(x).square().mean() + model[0].weight.sum()
        loss.backward()
        optimizer.step()
        return loss

    learn = functions.function(learn, "avg", framework="torch")
    x = learn.build_inputs(np.random.default_rng(0).random((8, 3), dtype="float32"))
    before = model[0].weight.detach().numpy().copy()
    learn(x)
    look = functions.function(lambda: model[0].weight.sum()[None], "gather", framework="torch")
    weights = functions.gather(model[0].weight)
    assert not np.allclose(weights[0], before) and not np.allclose(weights[0], weights[1])
    np.testing.assert_allclose(look(), weights.sum(axis=(1, 2)), rtol=1e-5)
    functions.all_reduce(list(model.parameters()))
    mean = functions.gather(model[0].weight)
    np.testing.assert_allclose(mean[0], weights.mean(axis=0), rtol=1e-5)
    assert (mean[0] == mean[1]).all()
    np.testing.assert_array_equal(model[0].weight.detach().numpy(), mean[0])
    functions.broadcast(model)
    running = functions.gather(model[1].running_mean)
    assert (running[0] == running[1]).all()


def test_torch_updates_in_place_and_slices(pair):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(2))

    def grow(x):
        with torch.no_grad():
            weight.add_(x.sum(dim=0))

    f = functions.function(grow, updates=[(weight, "sum")])
    f(functions.data(np.arange(8.0, dtype="float32").reshape(4, 2)), num_slices=2)
    assert functions.gather(weight).tolist() == [[0 + 2 + 2, 1 + 3 + 2], [4 + 6 + 2, 5 + 7 + 2]]


def test_givens_and_constants_in_graphs(pair):
    pytensor = pytest.importorskip("pytensor")
    pt = pytensor.tensor
    x, y, s = pt.vector("x"), pt.scalar("y"), pytensor.shared(3.0, "s")
    for givens in ({y: s}, [(y, s)]):
        f = functions.function([x], (x.sum() * y, "sum"), givens=givens, name="scaled")
        assert f.name == "scaled" and f.get_shared() == [s]
        assert f(functions.data(np.arange(4.0))) == 18
    both = functions.function([x], [(x.sum() * y, "sum"), (x * 2, "gather")], bcast_inputs=[y])
    one, two = both.build_inputs(np.arange(3.0), 2.0)
    total, rows = both(one, y=two)
    assert total == 6 and rows.tolist() == [0, 2, 4]

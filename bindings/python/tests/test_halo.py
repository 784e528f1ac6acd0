"""Halos on ranks that are threads of this process, and on real ones."""

import itertools
import warnings

import numpy as np
import pytest

import unisono as uni

MODES = {"zero": "constant", "replicate": "edge", "reflect": "reflect", "periodic": "wrap"}


def convolve(x, weights, stride, dilation):
    """A plain correlation of the last two axes, without padding."""
    rows = (x.shape[-2] - dilation * (weights.shape[0] - 1) - 1) // stride + 1
    columns = (x.shape[-1] - dilation * (weights.shape[1] - 1) - 1) // stride + 1
    out = np.zeros((*x.shape[:-2], rows, columns))
    for i, j in itertools.product(*map(range, weights.shape)):
        first, second = i * dilation, j * dilation
        out += (
            weights[i, j]
            * x[
                ...,
                first : first + (rows - 1) * stride + 1 : stride,
                second : second + (columns - 1) * stride + 1 : stride,
            ]
        )
    return out


@pytest.mark.parametrize(
    "axes", [{"h": 1, "w": 1}, {"h": 2, "w": 2}, {"h": 3, "w": 1}, {"h": 2, "w": 3}], ids=str
)
@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_a_convolution_over_parts_equals_that_of_the_full_array(axes, stride, dilation):
    with uni.local_grid(**axes) as grid:
        for boundary in MODES:
            compare_convolutions(grid, stride, dilation, boundary)


def compare_convolutions(local, stride, dilation, boundary):
    random = np.random.default_rng(7)
    whole, weights = random.normal(size=(2, 3, 13, 11)), random.normal(size=(3, 4))
    around = np.pad(whole, [(0, 0), (0, 0), (2, 1), (3, 2)], MODES[boundary])
    expected = convolve(around, weights, stride, dilation)

    def rank(grid):
        array = uni.GlobalArray(whole.shape, grid)
        window = array.window((3, 4), stride, [(2, 1), (3, 2)], dilation, boundary)
        part = whole[array.region]
        padded = window.forward(part)
        assert window.output.shape == expected.shape
        mine = convolve(padded, weights, stride, dilation)
        np.testing.assert_array_equal(mine, expected[window.output.region])
        # The dot test, over all ranks.
        y = np.random.default_rng(grid.rank).normal(size=padded.shape)
        sums = np.array([np.vdot(padded, y), np.vdot(part, window.adjoint(y))])
        grid.group.all_reduce(sums)
        np.testing.assert_allclose(sums[0], sums[1], rtol=1e-12)

    local.run(rank)


def test_outputs_of_transposed_windows_and_ceil_mode():
    with uni.local_grid(w=2) as grid:
        array = uni.GlobalArray((5,), grid.grids[1], split={"w": 0})
        up = array.window(kernel=4, stride=2, padding=1, transposed=True, output_padding=1)
        assert up.output.shape == (11,) and up.output.region == (slice(6, 11),)
        assert up.needed == ((2, 6),)
        pool = array.window(kernel=2, stride=2, ceil_mode=True)
        assert pool.output.shape == (3,) and pool.padded_shape == (2,)


def test_more_ranks_than_rows_and_uneven_parts():
    whole = np.arange(3.0)

    def rank(grid):
        array = uni.GlobalArray((3,), grid, split={"x": 0})
        assert array.local_shape == ((1,) if grid.rank < 3 else (0,))
        window = array.window(kernel=5, padding=2, boundary="periodic")
        padded = window.forward(whole[array.region])
        np.testing.assert_array_equal(
            padded, np.pad(whole, 2, "wrap")[grid.rank : grid.rank + 5][: len(padded)]
        )
        uneven = uni.GlobalArray((3,), grid, split={"x": 0}, sizes={"x": [0, 0, 3, 0, 0]})
        moved = array.repartition(whole[array.region], uneven)
        np.testing.assert_array_equal(moved, whole if grid.rank == 2 else [])

    with uni.local_grid(x=5) as grid:
        grid.run(rank)


def test_several_fields_and_out_and_refresh():
    def rank(grid):
        array = uni.GlobalArray((8, 6), grid)
        window = array.window(kernel=3, padding=1, boundary={"w": "periodic", "h": ("replicate", 5)})
        x = np.full(array.local_shape, grid.rank, dtype="float32")
        both = window.forward([x, 10 * x])
        assert isinstance(both, list) and both[0].dtype == np.float32
        alone = [window.forward(x), window.forward(10 * x)]
        np.testing.assert_array_equal(both, alone)
        assert (alone[0][-1] == 5).all() == (grid.coordinates["h"] == 1)
        out = np.empty_like(both[0])
        assert window.forward(x, out) is out
        np.testing.assert_array_equal(out, both[0])
        out[1:-1, 1:-1] += 1
        window.refresh(out)
        np.testing.assert_array_equal(out, window.forward(x + 1))
        gradients = window.adjoint([out, out])
        np.testing.assert_array_equal(gradients[0], gradients[1])
        exchange = window.begin_adjoint(out)
        np.testing.assert_array_equal(exchange.end(), gradients[0])
        view = array.get_fprop_view(x, 3, padding=1)
        assert view.shape == window.padded_shape
        assert array.get_bprop_view(view, 3, padding=1).shape == array.local_shape

    with uni.local_grid(h=2, w=2) as grid:
        grid.run(rank)


def test_a_grid_keeps_a_bounded_number_of_exchanges(monkeypatch):
    monkeypatch.setattr("unisono.halo.grid.MOST_EXCHANGES", 5)

    def rank(grid):
        arrays = [uni.GlobalArray((8 + length, 6), grid) for length in range(12)]
        for turn in range(3):
            for array in arrays[:: 1 if turn < 2 else -1]:
                window = array.window(kernel=3, padding=1)
                padded = window.forward(np.full(array.local_shape, float(turn)))
                assert padded.sum() > 0 or turn == 0
                kept = sum(len(one._exchanges) for owner in arrays for one in owner._windows.values())
                assert 0 < kept <= 5 and window._exchanges
        # An exchange in progress when it is dropped ends as usual; an abandoned one is forgotten.
        window, left = (array.window(kernel=3, padding=1) for array in arrays[:2])
        expected = window.forward(np.ones(window.input.local_shape))
        under_way = window.begin(np.ones(window.input.local_shape))
        left.begin(np.ones(left.input.local_shape))
        for array in arrays[5:]:
            array.window(kernel=3, padding=1).forward(np.ones(array.local_shape))
        assert not window._exchanges and not left._exchanges and not left._abandoned
        np.testing.assert_array_equal(under_way.end(), expected)
        np.testing.assert_array_equal(window.forward(np.ones(window.input.local_shape)), expected)
        assert left.forward(np.ones(left.input.local_shape)).sum() > 0

    with uni.local_grid(h=2) as grid:
        grid.run(rank)


def test_replicas_along_an_axis_that_divides_nothing():
    def rank(grid):
        array = uni.GlobalArray((6,), grid, split={"w": 0})
        window = array.window(kernel=3, padding=1)
        x = np.full(array.local_shape, 10.0 * grid.coordinates["data"])
        padded = window.forward(x)
        inner = padded[1:] if grid.coordinates["w"] == 0 else padded[:-1]
        assert set(inner) == {10.0 * grid.coordinates["data"]}
        assert grid.along("w").size == 2 and grid.along("w") is grid.along("w")

    with uni.local_grid(data=2, w=2) as grid:
        grid.run(rank)


def test_local_and_global_indices():
    with uni.local_grid(h=2, w=2) as local:
        grid = local.grids[3]
        array = uni.GlobalArray((5, 7), grid)
        assert array.region == (slice(3, 5), slice(4, 7)) and array.local_shape == (2, 3)
        assert array.owner((2, 6)) == 1 and array.owner((3, 4)) == 3
        assert array.to_local((4, 5)) == (1, 1) and array.to_local((0, 0)) is None
        assert array.to_global((1, 1)) == (4, 5)
        assert grid.coordinates_of(2) == {"h": 1, "w": 0} and grid.rank_at(h=1, w=0) == 2


@pytest.mark.parametrize("kernel, stride, padding", [(3, 1, [(1, 1), (2, 0)]), (1, 3, 0)])
@pytest.mark.parametrize("boundary", MODES)
def test_the_in_place_adjoint_gives_the_same_bits(kernel, stride, padding, boundary):
    def rank(grid):
        array = uni.GlobalArray((2, 13, 11), grid, split={"h": 1, "w": 2})
        window = array.window((kernel, kernel), stride, padding, boundary=boundary, dims=(1, 2))
        # With a stride, some rows are needed by no rank, or only by other ranks.
        inside = all(min(pair) >= 0 for pair in window.halos)
        assert inside or stride > 1
        for dtype in (np.float32, np.float64, np.float16, np.int64):
            random = np.random.default_rng(grid.rank)
            gradients = [(9 * random.normal(size=window.padded_shape)).astype(dtype) for _ in range(2)]
            expected = window.adjoint(gradients)
            copies = [one.copy() for one in gradients]
            made = window.adjoint(copies, overwrite=True)
            for one, copy, right in zip(made, copies, expected, strict=True):
                assert one.shape == right.shape and one.tobytes() == right.tobytes()
                if dtype == np.float16 or not inside:
                    assert not np.shares_memory(one, copy), "no view where it cannot be one"
                else:
                    assert np.shares_memory(one, copy)
            assert np.array_equal(window.adjoint(gradients[0], overwrite=True), expected[0])

    with uni.local_grid(h=2, w=3) as grid:
        grid.run(rank)


def test_torch_tensors_stay_tensors():
    torch = pytest.importorskip("torch")

    def rank(grid):
        array = uni.GlobalArray((4, 4), grid)
        window = array.window(kernel=3, padding=1)
        for dtype in [torch.float32, torch.bfloat16, torch.float16]:
            padded = window.forward(torch.full(array.local_shape, 1.0 + grid.rank, dtype=dtype))
            assert isinstance(padded, torch.Tensor) and padded.dtype == dtype
            back = window.adjoint(torch.ones(window.padded_shape, dtype=dtype))
            assert back.dtype == dtype and tuple(back.shape) == array.local_shape
            whole = torch.arange(16).reshape(4, 4).to(dtype)
            part = array.scatter(whole if grid.rank == 0 else torch.empty(0))
            assert part.dtype == dtype and torch.equal(part, whole[array.region])
            assert torch.equal(array.gather(part, root=None), whole)

    with uni.local_grid(h=2, w=1) as grid:
        grid.run(rank)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: uni.Grid(h=2, w=2), "which make 4"),
        (lambda: uni.Grid(h=0), "axes of 1 or more"),
        (lambda: uni.Grid(rows=1).rank_at(h=0), "each of the axes rows"),
        (lambda: uni.GlobalArray((4, 4), uni.Grid(rows=1)), "no split"),
        (lambda: uni.GlobalArray((4,), uni.Grid(h=1)), "for the axis h"),
        (lambda: uni.GlobalArray((4, 4), uni.Grid(h=1), sizes={"h": [3]}), "make 4 together"),
        (lambda: image().window(kernel=7), "within 4 inputs"),
        (lambda: image().window(kernel=3, padding=1, boundary="mirror"), "'mirror'|\"mirror\""),
        (lambda: image().window(kernel=(3, 3, 3)), "different dimensions"),
        (lambda: image().window(kernel=3, stride=(1, 1)), "one stride or 1"),
        (lambda: image().window(kernel=3, padding="same", stride=2), "stride 1"),
        (lambda: image().window(kernel=3, boundary={"w": "zero"}), "boundaries for the axes h"),
        (lambda: image().window(kernel=3).forward(np.zeros((4, 4))), "an array of the shape"),
        (lambda: bounded(2.7, "int32"), "that int32 holds, received 2.7"),
        (lambda: bounded(-1, "uint8"), "received -1.0; choose a whole number from 0 to 255"),
        (lambda: bounded(("zero", 300), "uint8"), "that uint8 holds, received 300.0"),
        (lambda: bounded(float("nan"), "int32"), "received nan"),
        (lambda: bounded(2.0**63, "int64"), "that int64 holds"),
        (lambda: image().scatter(np.zeros(3)), "whole array"),
        (lambda: image().gather(np.zeros(3)), "this rank's part"),
        (lambda: image().window(kernel=3).forward(np.zeros((4, 5), dtype="complex64")), "convert"),
        (lambda: image().window(kernel=3).forward("image"), r"received str; this rank has \[0:4, 0:5\]"),
        (lambda: image().gather([[1.0]]), "received list"),
        (lambda: image().window(kernel=2.5), "whole number of 1 or more for kernel, received 2.5"),
        (lambda: image().window(kernel=3, padding=-1), "for padding, received -1"),
        (lambda: image().owner((0, -1)), "whole number of 0 or more for an index, received -1"),
        (lambda: image().to_local((0,)), "expected 2 numbers"),
        (lambda: uni.GlobalArray((4, -4), uni.Grid(h=1)), "for the shape, received -4"),
        (lambda: uni.GlobalArray((4, 4), uni.Grid(h=1), sizes={"h": [-4]}), "the sizes along h, received -4"),
        (lambda: uni.Grid(h=1.5), "for the axis h, received 1.5"),
        (lambda: uni.local_grid(h="2"), "for the axis h, received '2'"),
        (lambda: uni.local_grid(h=2, w=-1), "how many ranks each axis has"),
        (lambda: uni.Grid(h=1).show("parts"), "a window over one, or nothing, received str"),
    ],
)
def test_mistakes_are_named(make, words):
    uni.init()
    with pytest.raises(uni.UsageError, match=words):
        make()


def bounded(boundary, dtype):
    window = image().window(kernel=3, padding=1, boundary={"h": boundary})
    return window.forward(np.ones((4, 5), dtype))


def test_constants_must_fit_the_type():
    uni.init()
    for boundary, dtype in ((255, "uint8"), (-128, "int8"), (-(2.0**63), "int64"), (2.5, "float32")):
        assert (bounded(boundary, dtype)[0, 1:] == boundary).all()
    assert np.isnan(bounded(float("nan"), "float16")[0]).all()


def image():
    return uni.GlobalArray((4, 5), uni.Grid(h=1), split={"h": 0})


def test_different_arguments_of_ranks_are_named():
    def rank(grid):
        array = uni.GlobalArray((8 + grid.rank, 8), grid)
        with pytest.raises(uni.UsageError, match="the same shape"):
            array.window(kernel=3).forward(np.zeros(array.local_shape))
        with pytest.raises(uni.UsageError, match="this rank has"):
            array.window(kernel=5).forward(np.zeros((1, 1)))

    with uni.local_grid(h=2) as grid:
        grid.run(rank)


@pytest.mark.parametrize("how", ["dropped", "block"])
@pytest.mark.parametrize("failing", [(0,), (0, 1, 2)])
def test_a_window_works_after_an_exchange_that_was_not_ended(how, failing):
    whole = np.arange(24.0).reshape(6, 4)

    def attempt(window, part, fails):
        if how == "block":
            with window.begin(part) as exchange:
                if fails:
                    raise KeyError("mine")
        else:
            exchange = window.begin(part)
            if fails:
                raise KeyError("mine")
            exchange.end()
        return exchange

    def rank(grid):
        array = uni.GlobalArray(whole.shape, grid, split={"h": 0})
        part = whole[array.region]
        window = array.window(kernel=3, padding=1)
        expected = window.forward(part)
        back = window.adjoint(np.ones(window.padded_shape))
        for step in range(4):
            fails = grid.rank in failing and step < 3
            try:
                exchange = attempt(window, part + step, fails)
            except KeyError:
                assert fails
            else:
                inner = expected[1:-1, 1:-1] + step
                np.testing.assert_array_equal(exchange.padded[1:-1, 1:-1], inner)
        np.testing.assert_array_equal(array.window(kernel=3, padding=1).forward(part), expected)
        np.testing.assert_array_equal(window.adjoint(np.ones(window.padded_shape)), back)
        with pytest.raises(uni.UsageError, match="ended or left"):
            exchange = window.begin(part)
            exchange.end()
            exchange.end()
        grid.group.barrier()

    with warnings.catch_warnings(), uni.local_grid(h=3) as grid:
        warnings.simplefilter("ignore", ResourceWarning)
        grid.run(rank)


def test_an_exchange_that_is_dropped_is_ended_by_the_next():
    uni.init()
    window = image().window(kernel=3, padding=1)
    window.begin(np.zeros((4, 5)))
    assert window.forward(np.ones((4, 5))).sum() == 20


def test_an_exception_of_a_rank_is_raised():
    def rank(grid):
        if grid.rank == 1:
            raise KeyError("mine")

    with uni.local_grid(h=3) as grid, pytest.raises(KeyError, match="mine"):
        grid.run(rank)


def test_no_rank_waits_for_one_that_failed():
    def rank(grid):
        if grid.rank == 1:
            raise KeyError("mine")
        grid.group.barrier()

    with uni.local_grid(h=3) as grid:
        with pytest.raises(KeyError, match="mine"):
            grid.run(rank)
        with pytest.raises(uni.UsageError, match=r"ranks \[1\] failed while others waited"):
            grid.run(rank)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_halos_between_processes(run_ranks, ranks):
    job = run_ranks(ranks, "halo.py", str(ranks)).check()
    assert sorted(job.notes) == list(range(ranks))


@pytest.mark.parametrize("launcher", ["mpich", "openmpi"])
def test_halos_over_mpi(run_ranks, launcher):
    job = run_ranks(4, "halo.py", "4", launcher=launcher, deadline=600, UNISONO_HOSTS="2").check()
    assert all("mpi" in note for note in job.notes.values())

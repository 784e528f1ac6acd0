"""Tables in a world of one: inputs, outputs, and what is rejected."""

import gc
import sys

import numpy as np
import pytest

import unisono as uni

TYPES = ["float32", "float64", "float16", "int32", "int64"]


@pytest.fixture(autouse=True)
def world(fresh_world):
    return uni.init()


def make_all(**options):
    return [
        uni.ArrayTable(6, **options),
        uni.MatrixTable(3, 2, **options),
        uni.SparseMatrixTable(3, 2, **options),
    ]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype):
    for table in make_all(dtype=dtype):
        delta = np.arange(6).reshape(table.shape).astype(dtype)
        table.add(delta)
        table.add(delta, wait=True)
        values = table.get()
        assert values.dtype == table.dtype == np.dtype(dtype)
        assert values.shape == table.shape
        np.testing.assert_array_equal(values, 2 * delta)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 here: pip install ml_dtypes")
    table = uni.ArrayTable(3, "bfloat16", init=1)
    table.add([1, 2, 3])
    table.add(np.ones(3, dtype=ml_dtypes.bfloat16))
    assert table.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(table.get().astype("float32"), [3, 4, 5])


def test_tensors():
    torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    table = uni.MatrixTable(4, 3, dtype=torch.bfloat16)
    table.add(torch.ones(4, 3, dtype=torch.bfloat16))
    table.add(torch.ones(2, 3, dtype=torch.bfloat16), rows=torch.tensor([1, 1]))
    out = torch.zeros(4, 3, dtype=torch.bfloat16)
    assert table.get(out=out) is out
    assert out[:, 0].tolist() == [1, 3, 1, 1]
    assert table.get_async(out=out).wait() is out
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.bfloat16))
    table.add(parameter)
    with pytest.raises(uni.UsageError, match=r"bfloat16, the table's type.*float32"):
        table.add(torch.ones(4, 3))
    with pytest.raises(uni.UsageError, match="contiguous"):
        table.get(out=torch.zeros(3, 4, dtype=torch.bfloat16).T)


def test_arrays_are_filled_in_place():
    for table in make_all(init=3):
        out = np.zeros(table.shape, dtype="float32")
        assert table.get(out=out) is out
        assert (out == 3).all()
        flat = np.zeros(6, dtype="float32")
        assert table.get(out=flat) is flat
        pending = table.get_async(out=flat)
        assert pending.wait() is flat


def test_rows():
    table = uni.MatrixTable(5, 2, init=np.arange(10, dtype="float32").reshape(5, 2))
    whole = np.arange(10).reshape(5, 2)
    for rows in (
        3,
        [3],
        [4, 0, 4],
        np.array([1, 2]),
        np.array([[0, 1], [2, 3]]),
        np.int32(2),
        [],
        (1,),
        range(3),
    ):
        wanted = np.asarray(rows, dtype=int)
        np.testing.assert_array_equal(table.get(rows), whole[wanted])
        np.testing.assert_array_equal(table.get_async(rows).wait(), whole[wanted])
        assert table.get(rows).shape == whole[wanted].shape
    out = np.zeros((2, 2), dtype="float32")
    assert table.get([4, 1], out) is out
    np.testing.assert_array_equal(out, whole[[4, 1]])
    table.add([[1, 1], [2, 2], [3, 3]], rows=[1, 3, 1])
    np.testing.assert_array_equal(table.get(1), whole[1] + 4)
    np.testing.assert_array_equal(table.get(3), whole[3] + 2)
    table.add([5, 5], rows=0)
    np.testing.assert_array_equal(table.get(0), whole[0] + 5)


def test_several_gets_are_in_flight():
    table = uni.MatrixTable(10, 3, init=uni.normal(0, 1, seed=3))
    pending = [table.get_async([row]) for row in range(10)]
    whole = table.get()
    for row, one in enumerate(pending):
        np.testing.assert_array_equal(one.wait()[0], whole[row])


def test_initial_values():
    np.testing.assert_array_equal(uni.ArrayTable(3).get(), [0, 0, 0])
    np.testing.assert_array_equal(uni.ArrayTable(3, "int32", init=7).get(), [7, 7, 7])
    np.testing.assert_array_equal(uni.ArrayTable(3, init=[1, 2, 3]).get(), [1, 2, 3])
    np.testing.assert_array_equal(uni.ArrayTable(3, init=np.float32(0.5)).get(), [0.5] * 3)
    values = uni.ArrayTable(1000, "float64", init=uni.uniform(-2, 5, seed=9)).get()
    assert values.min() >= -2 and values.max() < 5 and abs(values.mean() - 1.5) < 0.3
    again = uni.MatrixTable(10, 100, "float64", init=uni.uniform(-2, 5, seed=9)).get()
    np.testing.assert_array_equal(values, again.ravel())
    transposed = np.arange(6, dtype="float32").reshape(2, 3).T
    np.testing.assert_array_equal(uni.MatrixTable(3, 2, init=transposed).get(), transposed)


def test_inputs_need_not_be_contiguous():
    table = uni.MatrixTable(3, 2)
    delta = np.arange(6, dtype="float32").reshape(2, 3).T
    delta.flags.writeable = False
    table.add(delta)
    np.testing.assert_array_equal(table.get(), delta)
    table.add(delta[:2], rows=np.arange(6)[:4:2])


def test_flat_arrays_and_axes_of_length_one_fit():
    table = uni.MatrixTable(3, 2)
    table.add(np.arange(6, dtype="float32"))
    table.add(np.ones((1, 2), dtype="float32"), rows=0)
    table.add(np.ones((2, 1, 2), dtype="float32"), rows=[1, 2])
    assert table.get().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.get([0, 1], np.zeros((1, 4), dtype="float32")).tolist() == [[1, 2, 3, 4]]
    single = uni.ArrayTable(1)
    single.add(3)
    assert single.get().tolist() == [3]


def test_options_reach_the_updater():
    table = uni.ArrayTable(2, updater="rmsprop", learning_rate=0.5, rho=0.0, epsilon=1e-8)
    table.add([1, 4])
    np.testing.assert_allclose(table.get(), [-0.5, -0.5], rtol=1e-5)
    table.add([1, 4], learning_rate=0.25)
    np.testing.assert_allclose(table.get(), [-0.75, -0.75], rtol=1e-5)
    decayed = uni.ArrayTable(2, init=1.0, updater="lion", learning_rate=0.5, lambda_=0.5)
    decayed.add([3, -3])
    np.testing.assert_array_equal(decayed.get(), [0.25, 1.25])
    # The same with PyTorch's names; an add may use either.
    table = uni.ArrayTable(2, updater="rmsprop", lr=0.5, alpha=0.0, eps=1e-8)
    table.add([1, 4])
    table.add([1, 4], learning_rate=0.25, rho=0.0)
    np.testing.assert_allclose(table.get(), [-0.75, -0.75], rtol=1e-5)
    adam = uni.ArrayTable(1, "float64", updater="adamw", lr=0.5, betas=(0.5, 0.5), eps=1.0, weight_decay=0)
    adam.add([3])
    np.testing.assert_allclose(adam.get(), [-0.5 * 3 / 4])
    compensated = uni.ArrayTable(1, updater="dcasgd", lambda_=0.5)
    compensated.add([1], **{"lambda": 0.1})


def test_attributes_and_repr_of_a_table():
    table = uni.MatrixTable(
        3, 2, "float64", updater="momentum_sgd", consistency=("ssp", 3), name="embeddings"
    )
    assert len(table) == 3
    assert (table.shape, table.dtype, table.name) == ((3, 2), np.float64, "embeddings")
    assert (table.updater, table.consistency) == ("multiverso_momentum", "ssp:3")
    assert repr(table) == (
        "<unisono.MatrixTable 'embeddings', shape (3, 2), float64, updater multiverso_momentum, "
        "consistency ssp:3>"
    )
    assert uni.ArrayTable(2).name == "array-2"
    for consistency in ("async", "bsp", "bsp:mean", "ssp:0", "average"):
        assert uni.ArrayTable(2, consistency=consistency).consistency == consistency


def test_steps_and_staleness():
    table = uni.ArrayTable(2, consistency="ssp:1")
    assert table.staleness().tolist() == []
    for _ in range(5):
        table.get()
        table.add([1, 1])
        table.tick()
    table.flush()
    assert table.staleness().tolist() == [5]
    assert table.staleness().dtype == np.int64


def test_average_keeps_a_copy():
    table = uni.ArrayTable(2, consistency="average", init=4)
    table.add([1, 2])
    table.tick()
    np.testing.assert_array_equal(table.get(), [5, 6])


def test_sparse_tables_return_changed_rows():
    table = uni.SparseMatrixTable(5, 2, pipelined=True)
    first, second = np.full((2, 5, 2), 9, dtype="float32")
    np.testing.assert_array_equal(table.get_changed(first), range(5))
    table.add(np.ones((2, 2), dtype="float32"), rows=[1, 3])
    first[0] = 7  # an unchanged row is not written
    np.testing.assert_array_equal(table.get_changed(first), [1, 3])
    np.testing.assert_array_equal(first[:, 0], [7, 1, 0, 1, 0])
    np.testing.assert_array_equal(table.get_changed(second, buffer=1), range(5))
    assert table.get_changed(first).size == 0
    table.add([[0, 0], [2, 2], [0, 0], [0, 0], [0, 0]])
    part = np.zeros((2, 2), dtype="float32")
    np.testing.assert_array_equal(table.get_changed(part, rows=[0, 1]), [1])
    np.testing.assert_array_equal(part, [[0, 0], [3, 3]])
    np.testing.assert_array_equal(table.get(1), [3, 3])
    with pytest.raises(uni.UsageError, match="a buffer below 2"):
        table.get_changed(first, buffer=2)
    with pytest.raises(uni.UsageError, match=r"a buffer from 0 to .*received -1"):
        table.get_changed(first, buffer=-1)
    with pytest.raises(uni.UsageError, match=r"shape \(5, 2\).*\(2, 5\)"):
        table.get_changed(first.reshape(2, 5))


WRONG = [
    (lambda: uni.ArrayTable(0), "at least one element"),
    (lambda: uni.ArrayTable(-1), "a size from 0 to .*received -1; look"),
    (lambda: uni.MatrixTable(2**64, 1), "rows from 0"),
    (lambda: uni.SparseMatrixTable(3, -2), "columns from 0 to .*received -2"),
    (lambda: uni.KeyValueTable(-1), "values for each key from 0"),
    (lambda: uni.ArrayTable(3, updater=None), "expected text as updater, received None"),
    (lambda: uni.ArrayTable(3, name=5), "expected text as name, received 5"),
    (lambda: uni.ArrayTable(3, compression=None), "expected text as compression"),
    (lambda: uni.ArrayTable(3, "int8"), "float32, float64"),
    (lambda: uni.ArrayTable(3, "complex64"), "float32, float64"),
    (lambda: uni.ArrayTable(3, updater="adagard"), "did you mean `adagrad`"),
    (lambda: uni.ArrayTable(3, "int32", updater="adam"), "adam"),
    (lambda: uni.ArrayTable(3, learning_rat=1), "did you mean `learning_rate`"),
    (lambda: uni.ArrayTable(3, updater="momentum", momentum=2), "momentum"),
    (lambda: uni.ArrayTable(3, updater="adm"), "did you mean `adam`"),
    (
        lambda: uni.ArrayTable(3, updater="sgd", momentum=0.9, name="w"),
        r'`sgd` of table "w", received momentum=0.9; .*uses it: momentum, nesterov',
    ),
    (
        lambda: uni.ArrayTable(3, updater="adam", beta3=0.9, name="w"),
        r'`adam` of table "w": lr, beta1, .*"beta3"; did you mean `beta1`',
    ),
    (
        lambda: uni.ArrayTable(3, init=np.zeros(3), name="w"),
        'the table\'s type, for table "w", received float64',
    ),
    (lambda: uni.ArrayTable(3, "int32", updater="adam", name="w"), '"w": expected elements of .*`adam`'),
    (lambda: uni.ArrayTable(3, consistency="eventual"), "async, bsp"),
    (lambda: uni.ArrayTable(3, consistency="bsp:backup=1"), "backup"),
    (lambda: uni.ArrayTable(3, consistency=("ssp", "x")), "async, bsp"),
    (lambda: uni.ArrayTable(3, compression="zip"), "topk"),
    (lambda: uni.ArrayTable(3, init=np.zeros(4, dtype="float32")), "bytes of initial values"),
    (lambda: uni.ArrayTable(3, init=np.zeros(3)), "float32, the table's type.*float64"),
    (
        lambda: uni.MatrixTable(2, 3, init=np.zeros((3, 2), dtype="float32"), name="w"),
        r'shape \(2, 3\), or a flat one of 6 elements, for table "w", received one of shape \(3, 2\)',
    ),
    (lambda: uni.ArrayTable(6, init=np.zeros((3, 2), dtype="float32")), r"shape \(6,\).*shape \(3, 2\)"),
    (lambda: uni.ArrayTable(3, init=np.ma.masked_array(np.zeros(3, "float32"))), "without a mask"),
    (lambda: uni.ArrayTable(3, "int32", init=0.5), "a whole number"),
    (lambda: uni.ArrayTable(3, "int32", init=[0.5, 1, 2]), "numbers of type int32"),
    (lambda: uni.ArrayTable(3, "int32", init=2**31), "from -2147483648 to 2147483647.*2147483648; choose"),
    (lambda: uni.ArrayTable(3, "int32", init=1e12), "from -2147483648 to 2147483647.*1000000000000"),
    (lambda: uni.ArrayTable(3, "int64", init=-(2**63) - 1), "-9223372036854775809"),
    (lambda: uni.ArrayTable(3, "int64", init=10**400), "as int64 holds them"),
    (lambda: uni.ArrayTable(3, init=10**400), "that float32 holds"),
    (lambda: uni.ArrayTable(1, "int32", init=[2**40]), "received 1099511627776; make them smaller"),
    (lambda: uni.ArrayTable(3, init="zeros"), "numbers of type float32"),
    (lambda: uni.ArrayTable(3, init=uni.uniform(1, 0)), "low up to high"),
    (lambda: uni.ArrayTable(3, init=uni.normal(0, -1)), "0 or more"),
    (lambda: uni.ArrayTable(3, init=uni.normal(0, 1, seed=-1)), "seed"),
    (lambda: uni.ArrayTable(3, init=uni.normal(0, 1, seed=1.5)), "a whole seed"),
    (lambda: uni.ArrayTable(3, init=uni.uniform(0, float("inf"))), "finite"),
    (lambda: uni.SparseMatrixTable(3, 2, consistency="average"), "average"),
    (lambda: uni.ArrayTable(3, timeout=0), "above 0"),
]


@pytest.mark.parametrize(("make", "complaint"), WRONG)
def test_wrong_tables(make, complaint):
    with pytest.raises(uni.UsageError, match=complaint):
        make()
    uni.barrier()
    uni.ArrayTable(3).get()


class OnDevice:
    """The attributes of an array in CUDA memory that are read before its values."""

    def __init__(self, dtype):
        self.dtype, self.shape = np.dtype(dtype), (2,)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise AssertionError("not needed")


WRONG_CALLS = [
    (lambda table: table.get([0, 5]), r"row ids from 0 to 2.*5 at position 1"),
    (lambda table: table.add(np.ones((1, 2), "float32"), rows=[-1]), r"-1 at position 0"),
    (lambda table: table.get([0.5]), "integers, received float64"),
    (lambda table: table.get(OnDevice("float32")), "integers, received float32"),
    (lambda table: table.get(OnDevice("bool")), "integers, received bool"),
    (lambda table: table.get(OnDevice("uint64")), "integers, received uint64"),
    (lambda table: table.get([True]), "integers, received bool"),
    (lambda table: table.get("first"), "integers"),
    (lambda table: table.get([[0], [1, 2]]), "a ragged list"),
    (lambda table: table.add(np.ones((3, 2))), "float32, the table's type.*float64"),
    (lambda table: table.add(np.ones((3, 3), "float32")), "6 elements"),
    (lambda table: table.add(np.ones((3, 2), "float32"), rows=[1, 2]), "4 elements"),
    (lambda table: table.add([1, 2]), "6 elements"),
    (lambda table: table.add(np.ones((2, 3), "float32")), r"shape \(3, 2\).*\(2, 3\); .*transposed"),
    (lambda table: table.add([[1, 1, 1], [1, 1, 1]]), r"shape \(3, 2\).*\(2, 3\)"),
    (lambda table: table.add(np.ones((2, 3), "float32"), rows=[[1], [2], [2]]), r"shape \(3, 1, 2\)"),
    (lambda table: table.get(out=np.zeros((2, 3), "float32")), r"shape \(3, 2\).*\(2, 3\)"),
    (lambda table: table.get_async(out=np.zeros((2, 3), "float32")).wait(), r"shape \(3, 2\)"),
    (
        lambda table: table.add(np.ma.masked_array(np.ones((3, 2), "float32"))),
        "rank 0: add: .*without a mask",
    ),
    (lambda table: table.get(np.ma.masked_array([1, 2])), r"rank 0: .*leave .*ids.compressed\(\)"),
    (lambda table: table.add([[1], [2, 3]]), "ragged"),
    (lambda table: table.add("text"), "numbers of type float32"),
    (lambda table: table.add(None), "numbers of type float32"),
    (lambda table: table.get(out=np.zeros((3, 2))), "float32, the table's type.*float64"),
    (lambda table: table.get(out=np.zeros((3, 4), "float32")[:, ::2]), "contiguous"),
    (lambda table: table.get(out=np.zeros((3, 4), "float32")), "6 elements"),
    (lambda table: table.get(out=[1, 2, 3]), "a NumPy array or a tensor"),
    (lambda table: table.add(np.ones((3, 2), "float32"), momentun=1), "did you mean `momentum`"),
    (lambda table: table.add(np.ones((3, 2), "float32"), momentum=float("nan")), "finite"),
    (
        lambda table: table.add(np.ones((3, 2), "float32"), rho=1),
        '`momentum` of table "matrix-.*rho=1; leave it',
    ),
    (lambda table: table.add(np.ones((3, 2))), 'for table "matrix-[0-9]+", received float64'),
    (lambda table: table.add("text"), 'for table "matrix-[0-9]+", received'),
    (lambda table: table.add([[1, 1], [1, np.nan], [1, 1]]), "NaN at row 1, column 1"),
    (lambda table: table.get(timeout=-1), "above 0"),
    (lambda table: table.get_async([7]).wait(), "7 at position 0"),
]


@pytest.mark.parametrize(("call", "complaint"), WRONG_CALLS)
def test_wrong_calls_change_nothing(call, complaint):
    table = uni.MatrixTable(3, 2, init=1, reject_nan=True, updater="momentum")
    with pytest.raises(uni.UsageError, match=complaint):
        call(table)
    np.testing.assert_array_equal(table.get(), np.ones((3, 2)))


def test_numbers_only_as_options():
    with pytest.raises(uni.UsageError, match="expected a number as learning_rate, received 'fast'"):
        uni.ArrayTable(3, updater="sgd", learning_rate="fast")
    with pytest.raises(uni.UsageError, match=r"expected two numbers as betas, received 0\.9"):
        uni.ArrayTable(3, updater="adam", betas=0.9)


def test_errors_have_their_parts_as_attributes():
    for call in (lambda: uni.ArrayTable(3, init=["x"]), lambda: uni.ArrayTable(3, updater="none")):
        with pytest.raises(uni.UsageError) as caught:
            call()
        error = caught.value
        parts = f"{error.operation}: expected {error.expected}, received {error.received}; {error.advice}"
        assert error.rank == 0 and str(error) == f"rank 0: {parts}"


def test_arrays_have_no_rows():
    table = uni.ArrayTable(3)
    for call in (lambda: table.get([1]), lambda: table.add([1], rows=[1]), lambda: table.get_async([1])):
        with pytest.raises(uni.UsageError, match="as a whole"):
            call()


def test_only_sparse_tables_have_get_changed():
    assert not hasattr(uni.MatrixTable(3, 2), "get_changed")


def test_names_are_unique():
    table = uni.ArrayTable(3, name="weights")
    with pytest.raises(uni.UsageError, match="weights"):
        uni.MatrixTable(3, 2, name="weights")
    del table
    uni.ArrayTable(3, name="weights")


def test_fractions_are_not_converted_to_integers():
    table = uni.ArrayTable(2, "int64")
    with pytest.raises(uni.UsageError, match="int64"):
        table.add([0.5, 1])
    table.add([2**53 + 1, -1])
    assert table.get().tolist() == [2**53 + 1, -1]


def test_integers_arrive_exactly_or_are_rejected():
    for exact in (2**53 + 1, -(2**63), np.int64(2**63 - 1)):
        assert uni.ArrayTable(2, "int64", init=exact).get().tolist() == [exact, exact]
    assert uni.ArrayTable(1, "int32", init=2.0).get().tolist() == [2]
    table = uni.ArrayTable(2, "int32")
    for wrong in ([2**40, 1], [-(2**31) - 1, 0], np.array([2**33, 1]).tolist()):
        with pytest.raises(uni.UsageError, match="from -2147483648 to 2147483647, as int32 holds them"):
            table.add(wrong)
    with pytest.raises(uni.UsageError, match="received 9223372036854775808"):
        uni.ArrayTable(1, "int64").add([2**63])
    table.add([-(2**31), 2**31 - 1])
    assert table.get().tolist() == [-(2**31), 2**31 - 1]


def test_after_shutdown():
    table = uni.SparseMatrixTable(3, 2)
    uni.shutdown()
    out = np.zeros((3, 2), dtype="float32")
    calls = [
        table.get,
        table.get_async,
        table.tick,
        table.flush,
        table.staleness,
        lambda: table.add(out),
        lambda: table.get_changed(out),
    ]
    for call in calls:
        with pytest.raises(uni.UsageError, match="after shutdown"):
            call()
    assert "sparse-matrix-1" in repr(table)
    with pytest.raises(uni.UsageError, match="init"):
        uni.ArrayTable(3)
    uni.init()
    with pytest.raises(uni.UsageError, match="after shutdown"):
        table.get()
    np.testing.assert_array_equal(uni.ArrayTable(2, name="sparse-matrix-1").get(), [0, 0])


def test_calls_in_flight_at_shutdown_end():
    table = uni.ArrayTable(100_000)
    pending = table.get_async()
    uni.shutdown()
    assert pending.wait().shape == (100_000,)


def test_roles(world):
    assert (world.workers, world.servers, world.worker_id, world.server_id) == (1, 1, 0, 0)
    uni.ArrayTable(3)
    assert (world.workers, world.servers, world.worker_id, world.server_id) == (1, 1, 0, 0)
    assert uni.init(role="both") is world
    with pytest.raises(uni.UsageError, match="first init"):
        uni.init(role="worker")


def test_unknown_roles_are_rejected():
    with pytest.raises(uni.UsageError, match="none, worker, server or both"):
        uni.init(role="boss")
    with pytest.raises(uni.UsageError, match="at least one worker and one server"):
        uni.init(role="worker")
    assert uni.init(role="both").workers == 1


def test_references_are_released():
    table = uni.MatrixTable(3, 2)
    delta, rows, out = np.ones((3, 2), "float32"), np.arange(3), np.zeros((3, 2), "float32")
    before = [sys.getrefcount(x) for x in (delta, rows, out)]
    for _ in range(10):
        table.add(delta, rows)
        table.add(delta, wait=True)
        table.get(rows, out)
        table.get_async(rows, out).wait()
        with pytest.raises(uni.UsageError):
            table.add(delta, rows=[1])
    uni.MatrixTable(3, 2, init=delta)
    gc.collect()
    table.flush()
    assert [sys.getrefcount(x) for x in (delta, rows, out)] == before


def test_many_tables_are_created_and_dropped():
    for number in range(200):
        table = uni.ArrayTable(100_000, init=number)
        assert table.get()[-1] == number


def test_missing_devices_are_rejected():
    with pytest.raises(uni.Error, match="CUDA"):
        uni.MatrixTable(3, 2, device="cuda:999")
    with pytest.raises(uni.UsageError, match="'tpu'"):
        uni.MatrixTable(3, 2, device="tpu")
    with pytest.raises(uni.Unsupported, match="average in device memory"):
        uni.ArrayTable(3, device="cuda", consistency="average")
    for table in make_all(device="cpu", init=1):
        assert table.device == "cpu" and "cuda" not in repr(table)
        np.testing.assert_array_equal(table.get(), np.ones(table.shape))

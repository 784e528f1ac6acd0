"""Key-value tables in a world of one."""

import numpy as np
import pytest

import unisono as uni


@pytest.fixture(autouse=True)
def world(fresh_world):
    return uni.init()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_integers_as_keys(dtype):
    table = uni.KeyValueTable(2, dtype)
    table.add([5, -3, 5], np.array([[1, 2], [3, 4], [5, 6]], dtype=dtype))
    np.testing.assert_array_equal(table.get([5, 7, -3]), [[6, 8], [0, 0], [3, 4]])
    assert table.get(5).tolist() == [6, 8] and table.get(np.int32(5)).shape == (2,)
    assert table.get(np.array([[5], [7]])).shape == (2, 1, 2)
    assert table.get(5).dtype == table.dtype == np.dtype(dtype)
    assert (len(table), 5 in table, 7 in table, b"5" in table) == (2, True, False, False)
    assert np.array(5) in table and None not in table
    assert table.contains([7, 5, -3]).tolist() == [False, True, True]
    for many in ([5, 7], (5,), np.array([5, 7]), {5}, range(5)):
        with pytest.raises(uni.UsageError, match=r"expected one key, received .*contains\(keys\)"):
            many in table  # noqa: B015
    assert list(table) == [-3, 5]
    assert [(key, vector.tolist()) for key, vector in table.items()] == [(-3, [3, 4]), (5, [6, 8])]
    keys, values = table.arrays()
    assert keys.dtype == np.int64 and values.shape == (2, 2)
    table.add(2**62, [1, 1])
    assert list(table)[-1] == 2**62


def test_keys_of_more_bits_are_rejected():
    table = uni.KeyValueTable(1)
    calls = [
        lambda: table.add(np.array([2**63 + 5], dtype="uint64"), [[1]]),
        lambda: table.add([2**63 + 5], [[1]]),
        lambda: table.get(2**64 - 1),
        lambda: 2**63 + 5 in table,
    ]
    for call in calls:
        with pytest.raises(uni.UsageError, match="keys from -9223372036854775808 to 9223372036854775807"):
            call()
    for call in (lambda: table.get(2**64), lambda: 2**70 in table):
        with pytest.raises(uni.UsageError, match="more than 64 bits"):
            call()
    table.add(np.array([7, 2**63 - 1], dtype="uint64"), [[1], [1]])
    assert list(table) == [7, 2**63 - 1] and np.uint8(7) in table


def test_shapes():
    table = uni.KeyValueTable(2)
    calls = [
        lambda: table.add([1, 2, 3], np.ones((2, 3), dtype="float32")),
        lambda: table.get([1, 2, 3], np.ones((2, 3), dtype="float32")),
        lambda: table.get_async([1, 2, 3], np.ones((2, 3), dtype="float32")).wait(),
    ]
    for call in calls:
        with pytest.raises(uni.UsageError, match=r"shape \(3, 2\), .* received one of shape \(2, 3\)"):
            call()
    assert len(table) == 0
    table.add([1, 2, 3], np.ones(6, dtype="float32"))
    table.add(1, np.ones((1, 2), dtype="float32"))
    assert table.get([1, 2]).tolist() == [[2, 2], [1, 1]]


def test_keys_that_are_not_bytes_are_rejected():
    table = uni.KeyValueTable(1, keys="bytes")
    for wrong, kind in ((5, "int"), ([5], "int"), (None, "NoneType"), ("text", "str")):
        with pytest.raises(uni.UsageError, match=f"keys that are bytes, received {kind}"):
            table.get(wrong)


def test_bytes_as_keys():
    table = uni.KeyValueTable(1, "int64", keys="bytes")
    words = b"to be or not to be".split()
    table.add(words, [[1]] * len(words))
    assert table.get(b"be").tolist() == [2]
    assert table.get([b"not", b"that", b"to"]).tolist() == [[1], [0], [2]]
    assert (len(table), b"or" in table, b"question" in table, 3 in table) == (4, True, False, False)
    assert table.contains([b"or", b"question", b"or"]).tolist() == [True, False, True]
    with pytest.raises(uni.UsageError, match=r"text\.encode"):
        "or" in table  # noqa: B015
    assert dict((key, int(vector[0])) for key, vector in table.items()) == {
        b"be": 2,
        b"not": 1,
        b"or": 1,
        b"to": 2,
    }
    table.add(b"", [7])
    assert next(iter(table)) == b""
    assert table.arrays()[0] == list(table)


def test_initial_values_and_updaters():
    table = uni.KeyValueTable(3, init=uni.uniform(-1, 1, seed=2), updater="sgd", name="embeddings")
    first = table.get(12)
    assert (abs(first) <= 1).all() and 12 not in table
    table.add(12, [1, 1, 1])
    np.testing.assert_allclose(table.get(12), first - 1, rtol=1e-6)
    assert uni.KeyValueTable(1, init=4).get(0).tolist() == [4]
    assert repr(table) == (
        "<unisono.KeyValueTable 'embeddings', int keys, dim 3, float32, updater sgd, consistency async>"
    )
    assert bool(uni.KeyValueTable(1)) and table.dim == 3


def test_in_place_and_in_the_background():
    table = uni.KeyValueTable(2)
    table.add([1, 2], [[1, 1], [2, 2]], wait=True)
    out = np.zeros((2, 2), dtype="float32")
    assert table.get([2, 1], out) is out
    assert out.tolist() == [[2, 2], [1, 1]]
    assert table.get_async([1], out[:1]).wait().tolist() == [[1, 1]]
    assert table.get_async(1).wait().tolist() == [1, 1]
    words = uni.KeyValueTable(1, keys="bytes")
    assert words.get_async(b"a").wait().shape == (1,)
    table.tick()
    table.flush()
    assert table.staleness().sum() == 3


def test_the_table_grows():
    table = uni.KeyValueTable(4, "float64")
    for start in range(0, 50_000, 5_000):
        keys = np.arange(start, start + 5_000) * 7919
        table.add(keys, np.repeat(keys[:, None], 4, axis=1).astype("float64"))
    assert len(table) == 50_000
    keys, values = table.arrays()
    np.testing.assert_array_equal(values[:, 0], keys)


def test_deleted_keys_are_absent_and_start_anew():
    table = uni.KeyValueTable(2, updater="adam", init=3)
    table.add([1, 2, 3], np.ones((3, 2), dtype="float32"))
    first = table.get([1, 2, 3])
    table.add([1, 2, 3], np.ones((3, 2), dtype="float32"))
    table.delete(np.array([1, 3, 9, 1]))
    assert (len(table), list(table)) == (1, [2])
    assert table.get([1, 3]).tolist() == [[3, 3], [3, 3]]
    table.delete(2, wait=True)
    assert len(table) == 0
    table.delete([])
    table.add([1, 2, 3], np.ones((3, 2), dtype="float32"))
    np.testing.assert_array_equal(table.get([1, 2, 3]), first)
    words = uni.KeyValueTable(1, keys="bytes")
    words.add([b"a", b"b", b""], [[1], [2], [3]])
    words.delete(b"b")
    words.delete([b"", b"c"])
    assert list(words) == [b"a"]
    with pytest.raises(uni.UsageError, match="keys that are integers"):
        table.delete("a")
    with pytest.raises(uni.UsageError, match="keys that are bytes"):
        words.delete(1)


@pytest.mark.parametrize("eviction", [None, "lru", "lfu"])
def test_a_limited_table_evicts_what_is_used_least(eviction):
    table = uni.KeyValueTable(4, max_rows=500, eviction=eviction)
    hot = np.arange(20)
    reported, missed = [], 0
    for start in range(100, 10_100, 100):
        table.add(np.arange(start, start + 100), np.ones((100, 4), dtype="float32"))
        table.add(hot, np.ones((20, 4), dtype="float32"))
        table.get(hot)
        assert len(table) <= 500
        keys, more = table.evicted()
        reported, missed = [*reported, *keys], missed + more
    assert (len(table), table.max_rows, missed) == (500, 500, 0)
    assert table.contains(hot).all() and table.get(0).tolist() == [100] * 4
    assert sorted([*reported, *table]) == [*range(20), *range(100, 10_100)]
    assert len(table.evicted().keys) == 0


def test_evicted_byte_strings():
    table = uni.KeyValueTable(1, keys="bytes", max_rows=100)
    table.add([b"key %d" % key for key in range(1000)], np.ones((1000, 1), dtype="float32"))
    evicted = table.evicted()
    assert len(evicted.keys) == 900 and evicted.missed == 0
    assert sorted([*evicted.keys, *table]) == sorted(b"key %d" % key for key in range(1000))
    table.add(b"more", [1])
    assert len(table.evicted().keys) == 1 and uni.KeyValueTable(1, keys="bytes").evicted() == ([], 0)


def test_wrong_limits():
    for max_rows, complaint in (
        (0, "max_rows of at least 1"),
        (-1, "max_rows from 0"),
        (1.5, "max_rows as an int"),
    ):
        with pytest.raises(uni.UsageError, match=complaint):
            uni.KeyValueTable(2, max_rows=max_rows)
    with pytest.raises(uni.UsageError, match="lru or lfu"):
        uni.KeyValueTable(2, max_rows=5, eviction="fifo")
    with pytest.raises(uni.UsageError, match="text as eviction"):
        uni.KeyValueTable(2, max_rows=5, eviction=3)
    with pytest.raises(uni.UsageError, match="no eviction for a table without max_rows"):
        uni.KeyValueTable(2, eviction="lfu")
    assert uni.KeyValueTable(2).max_rows is None


WRONG = [
    (lambda table: table.get("a"), "expected keys that are integers"),
    (lambda table: table.get([0.5]), "expected keys that are integers"),
    (lambda table: table.get(None), "expected"),
    (lambda table: table.get([b"a"]), "expected keys that are integers"),
    (lambda table: table.delete([0.5]), "expected keys that are integers"),
    (lambda table: table.add([1, 2], [[1, 1]]), "4 elements"),
    (lambda table: table.add([1], np.ones((1, 2))), "float32, the table's type.*float64"),
    (lambda table: table.add([1], [[1, np.nan]]), "NaN"),
    (lambda table: table.get([1], np.zeros((2, 2), "float32")), "2 elements"),
]


@pytest.mark.parametrize(("call", "complaint"), WRONG)
def test_wrong_calls_change_nothing(call, complaint):
    table = uni.KeyValueTable(2, reject_nan=True)
    with pytest.raises(uni.UsageError, match=complaint):
        call(table)
    assert len(table) == 0


def test_wrong_tables():
    with pytest.raises(uni.UsageError, match="int or bytes"):
        uni.KeyValueTable(2, keys="text")
    with pytest.raises(uni.UsageError, match="add it to its keys"):
        uni.KeyValueTable(2, init=np.zeros(2, dtype="float32"))
    with pytest.raises(uni.UsageError):
        uni.KeyValueTable(0)
    words = uni.KeyValueTable(2, keys="bytes")
    for keys in ("a", ["a"], [1]):
        with pytest.raises(uni.UsageError, match="encode"):
            words.get(keys)


def test_after_shutdown():
    table = uni.KeyValueTable(2)
    uni.shutdown()
    for call in (lambda: table.get(1), lambda: table.add(1, [1, 1]), lambda: len(table), lambda: 1 in table):
        with pytest.raises(uni.UsageError, match="after shutdown"):
            call()


def test_checkpoints(tmp_path):
    table = uni.KeyValueTable(1, keys="bytes", name="words")
    table.add([b"a", b"b"], [[1], [2]])
    uni.save(tmp_path / "checkpoint")
    table.add([b"c"], [[3]])
    uni.load(tmp_path / "checkpoint")
    assert [(key, vector.tolist()) for key, vector in table.items()] == [(b"a", [1]), (b"b", [2])]

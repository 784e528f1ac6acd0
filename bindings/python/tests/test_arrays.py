"""Which arrays are accepted, which are rejected, and the memory of results; in a world of one."""

import gc
import os
import sys

import numpy as np
import pytest

import unisono as uni

IN_PLACE = [
    lambda x: uni.all_reduce(x),
    lambda x: uni.reduce(x),
    lambda x: uni.broadcast(x),
    lambda x: uni.recv(x, 0),
    lambda x: uni.all_reduce(x, wait=False),
]
INPUTS = [
    lambda x: uni.gather(x)[0],
    lambda x: uni.all_gather(x, varied=True),
    lambda x: uni.scatter(x),
    lambda x: uni.reduce_scatter(x),
    lambda x: uni.all_to_all(x),
    lambda x: uni.all_to_all([x])[0],
]


@pytest.fixture(autouse=True)
def world(fresh_world):
    return uni.init()


@pytest.mark.parametrize("verb", IN_PLACE)
def test_read_only_arrays_are_rejected(verb):
    x = np.ones(3)
    x.flags.writeable = False
    with pytest.raises(uni.UsageError, match="read-only"):
        verb(x)


@pytest.mark.parametrize("verb", IN_PLACE)
@pytest.mark.parametrize("x", [np.ones((4, 4))[:, ::2], np.asfortranarray(np.ones((2, 3)))])
def test_results_that_need_a_hidden_copy_are_rejected(verb, x):
    with pytest.raises(uni.UsageError, match="ascontiguousarray"):
        verb(x)


@pytest.mark.parametrize("verb", INPUTS)
def test_inputs_need_not_be_contiguous_or_writable(verb):
    x = np.arange(12.0).reshape(3, 4).T
    x.flags.writeable = False
    np.testing.assert_array_equal(verb(x), x)


@pytest.mark.parametrize("verb", IN_PLACE + INPUTS)
@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "object", ">f4", ">i2", "U3", "M8[s]"])
def test_other_types_are_rejected_by_name(verb, dtype):
    with pytest.raises(
        uni.UsageError, match="float32, float64, float16, bfloat16, int8, uint8, int32, int64"
    ):
        verb(np.zeros(3, dtype=dtype))


@pytest.mark.parametrize("verb", IN_PLACE + INPUTS[:5])
@pytest.mark.parametrize("x", [3.0, "text", np.float32(1), object()])
def test_objects_that_are_not_arrays_are_rejected(verb, x):
    with pytest.raises(uni.UsageError, match="a NumPy array or a tensor"):
        verb(x)


@pytest.mark.parametrize("verb", IN_PLACE + INPUTS)
def test_masked_arrays_are_rejected(verb):
    with pytest.raises(uni.UsageError, match="an array without a mask"):
        verb(np.ma.masked_array([1.0, 2.0], [False, True]))


def test_misaligned_arrays():
    x = np.zeros(33, dtype="uint8")[1:].view("float64")
    with pytest.raises(uni.UsageError, match="aligned"):
        uni.all_reduce(x)
    assert uni.gather(x).shape == (1, 4)


@pytest.fixture
def ml_dtypes():
    return pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 here: pip install ml_dtypes")


def test_bfloat16(ml_dtypes):
    x = np.ones(3, dtype=ml_dtypes.bfloat16)
    assert uni.all_reduce(x) is x
    assert uni.gather(x).dtype == ml_dtypes.bfloat16
    assert uni.empty(3, "bfloat16").dtype == ml_dtypes.bfloat16
    assert uni.empty(3, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(uni.UsageError, match="float8"):
        uni.all_reduce(np.ones(3, dtype=ml_dtypes.float8_e4m3))


def test_subclasses_are_accepted():
    matrix = np.ones(4).view(np.recarray)
    assert uni.broadcast(matrix) is matrix


def test_integers_have_no_average():
    for verb in (uni.all_reduce, uni.reduce, uni.reduce_scatter):
        with pytest.raises(uni.UsageError, match="avg"):
            verb(np.ones(3, dtype="int32"), op="avg")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x: uni.all_reduce(x, op="mean"), "sum, avg, prod, min, max"),
        (lambda x: uni.broadcast(x, root=1), "a rank from 0 to 0, received 1"),
        (lambda x: uni.reduce(x, root=-1), "a rank from 0 to 0, received -1"),
        (lambda x: uni.gather(x, root=2**70), "a rank from 0 to 0, received 1180591620717411303424"),
        (lambda x: uni.scatter(x, root=0.5), "a rank from 0 to 0, received 0.5"),
        (lambda x: uni.send(x, to=7), "a rank from 0 to 0, received 7"),
        (lambda x: uni.recv(x, source=-1), "a rank from 0 to 0, received -1"),
        (lambda x: uni.send(x, to=0, tag=-1), "send: expected a tag from 0 to 2147483647, received -1"),
        (lambda x: uni.recv(x, source=0, tag=2**31), "recv: expected a tag"),
        (lambda x: uni.recv(x, source=0, tag=2**40), "recv: expected a tag"),
        (lambda x: uni.empty(-1), "a shape of integers from 0 up, received -1"),
        (lambda x: uni.empty([2, 2**70]), "a shape of integers from 0 up"),
        (lambda x: uni.empty([2.7, 3]), r"a shape of integers from 0 up, received \[2.7, 3\]"),
        (lambda x: uni.empty(3.0), "a shape of integers from 0 up, received 3.0"),
        (lambda x: uni.all_reduce(x, timeout=0), "above 0"),
        (lambda x: uni.all_reduce(x, timeout=float("nan")), "above 0"),
        (lambda x: uni.scatter(None), "an array at the root"),
        (lambda x: uni.scatter(np.array(1.0)), "first axis"),
        (lambda x: uni.reduce_scatter(np.array(1.0)), "first axis"),
        (lambda x: uni.all_to_all([x, x]), "one for each rank"),
        (lambda x: uni.all_gather(np.zeros((1,) * 9), varied=True), "at most 8 axes"),
        (lambda x: uni.world().group([0, 0]), "group"),
        (lambda x: uni.world().group([1]), "group"),
        (lambda x: uni.world().group([-1]), "a rank from 0 to 0, received -1"),
        (lambda x: uni.world().split(-1), "a color from 0 up, received -1"),
        (lambda x: uni.world().split(0, 2**70), "a key of at most 64 bits"),
    ],
)
def test_wrong_arguments(call, complaint):
    x = np.arange(3.0)
    with pytest.raises(uni.UsageError, match=complaint):
        call(x)
    np.testing.assert_array_equal(x, np.arange(3.0))
    uni.barrier()


def test_negative_ranks_are_rejected():
    with pytest.raises((uni.UsageError, OverflowError)):
        uni.broadcast(np.ones(3), root=-1)


def test_empty_arrays_stay_in_the_arena_while_referenced():
    x = uni.empty((4, 1000), "float64")
    assert (x.shape, x.dtype) == ((4, 1000), np.float64)
    assert x.ctypes.data % 4096 == 0
    x[:] = 7
    view = x[2]
    del x
    gc.collect()
    others = [uni.empty(4000, "float64") for _ in range(4)]
    for other in others:
        other[:] = 1
    assert (view == 7).all()
    assert uni.all_reduce(view) is view


def test_empty_outlives_its_world():
    x = uni.empty(1000)
    x[:] = 3
    uni.shutdown()
    assert x.sum() == 3000
    x[:] = 4


def test_empty_accepts_every_shape_and_type():
    assert uni.empty(3).shape == (3,)
    assert uni.empty(()).shape == ()
    assert uni.empty((2, 0)).size == 0
    assert uni.empty(3, np.int32).dtype == np.int32
    assert uni.empty(np.int64(3)).shape == (3,)
    with pytest.raises(uni.UsageError, match="float32"):
        uni.empty(3, "longdouble")
    with pytest.raises(uni.UsageError, match="fits"):
        uni.empty((2**40, 2**40))


def test_empty_can_be_called_many_times():
    for _ in range(300):
        uni.empty(1 << 20)[:1] = 1


def test_results_outlive_their_world():
    parts = uni.all_to_all([np.arange(5)])
    uni.shutdown()
    gc.collect()
    np.testing.assert_array_equal(parts[0], np.arange(5))


class Lender:
    """Supports DLPack in the old form only."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self):
        return self.array.__dlpack__()


class Elsewhere(Lender):
    def __dlpack_device__(self):
        return (2, 0)


def test_any_dlpack_array_is_accepted():
    x = Lender(np.arange(3.0))
    assert uni.all_reduce(x) is x
    np.testing.assert_array_equal(uni.gather(x), [[0, 1, 2]])
    with pytest.raises(uni.UsageError, match="lent"):
        uni.gather(Lender(np.zeros(3, dtype="longdouble")))
    with pytest.raises(uni.UsageError, match="contiguous"):
        uni.all_reduce(Lender(np.zeros((4, 4)).T[1:]))


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_an_array_in_cuda_memory_needs_a_driver():
    for verb in (uni.all_reduce, uni.gather, uni.scatter, uni.all_to_all):
        with pytest.raises(uni.Unsupported, match=r"NVIDIA driver.*libcuda\.so\.1.*UNISONO_LIBCUDA"):
            verb(Elsewhere(np.ones(3)))
    assert uni.all_reduce(np.ones(3)).tolist() == [1, 1, 1]


def test_other_accelerators_are_not_supported():
    class OnAnother(Elsewhere):
        def __dlpack_device__(self):
            return (10, 0)

    with pytest.raises(uni.Unsupported, match="accelerator"):
        uni.all_reduce(OnAnother(np.ones(3)))


def test_references_are_released():
    x, lender = np.ones(3), Lender(np.ones(3))
    before = sys.getrefcount(x), sys.getrefcount(lender.array)
    for _ in range(10):
        uni.all_reduce(x)
        uni.gather(x)
        uni.all_reduce(lender)
        uni.all_reduce(x, wait=False).wait()
        pending = uni.send(x, 0, wait=False)
        uni.recv(lender, 0)
        pending.wait()
        with pytest.raises(uni.UsageError):
            uni.all_reduce(x, op="mean")
    del pending
    uni.barrier()
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(lender.array)) == before

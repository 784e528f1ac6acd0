"""PyTorch tensors: no copy, tensors in, tensors out."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")

import unisono as uni  # noqa: E402

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.int16,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]
SMALL_TYPES = [
    getattr(torch, f"float8_{kind}") for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
]


@pytest.fixture(autouse=True)
def world(fresh_world):
    return uni.init()


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_in_tensors_out(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype)
    assert uni.all_reduce(x) is x
    for result in (uni.gather(x)[0], uni.scatter(x), uni.reduce_scatter(x), uni.all_to_all([x])[0]):
        assert isinstance(result, torch.Tensor) and result.dtype == dtype
        assert torch.equal(result, x)


def test_results_can_be_changed_and_resized():
    result = uni.all_gather(torch.zeros(3))
    result += 1
    assert result.sum() == 3


def test_parameters_are_used_in_place():
    layer = torch.nn.Linear(3, 2)
    assert uni.broadcast(layer.weight) is layer.weight
    assert not uni.gather(layer.weight).requires_grad


def test_tensors_that_need_a_hidden_copy_are_rejected():
    with pytest.raises(uni.UsageError, match="contiguous"):
        uni.all_reduce(torch.ones(3, 4).t())
    assert torch.equal(uni.gather(torch.arange(6).reshape(2, 3).t())[0], torch.arange(6).reshape(2, 3).t())


@pytest.mark.parametrize("dtype", SMALL_TYPES)
def test_types_of_eight_bits_are_moved(dtype):
    x = torch.tensor([0.5, 1, 2, 4]).to(dtype)
    bits = x.view(torch.uint8)
    assert uni.broadcast(x) is x
    sent = uni.send(x, 0, wait=False)
    received = uni.recv(torch.zeros(4, dtype=torch.uint8).view(dtype), 0)
    sent.wait()
    results = (received, uni.gather(x)[0], uni.all_gather(x)[0], uni.scatter(x), uni.all_to_all([x])[0])
    for result in (*results, uni.all_to_all(x), uni.all_gather(x, varied=True)):
        assert result.dtype == dtype and torch.equal(result.view(torch.uint8), bits)
    with pytest.raises(uni.UsageError, match=f"for sum, received {str(dtype)[6:]}; convert to float32"):
        uni.all_reduce(x)
    assert torch.equal(x.view(torch.uint8), bits)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_other_types_are_rejected():
    with pytest.raises(uni.UsageError, match=r"bfloat16.*received complex32"):
        uni.all_reduce(torch.empty(3, dtype=torch.complex32))


def test_a_lazily_conjugated_tensor_is_written():
    x = torch.tensor([1 + 2j, 3j]).conj()
    assert uni.all_reduce(x) is x and uni.broadcast(x) is x
    assert x.tolist() == [1 - 2j, -3j]
    assert uni.all_gather(x)[0].tolist() == [1 - 2j, -3j]


@pytest.mark.parametrize("bad", [torch.ones(3, device="meta"), torch.ones(3, 3).to_sparse()])
def test_tensors_without_their_own_memory_are_rejected(bad):
    with pytest.raises(uni.UsageError, match="lent"):
        uni.all_reduce(bad)


class Wrapper(torch.Tensor):
    """Like DTensor and FakeTensor: its values are not in its own storage."""

    @staticmethod
    def __new__(cls, shape, **options):
        return torch.Tensor._make_wrapper_subclass(cls, shape, **options)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


@pytest.mark.parametrize("verb", [uni.all_reduce, uni.all_gather])
@pytest.mark.parametrize(
    "make", [lambda: Wrapper((3,)), lambda: Wrapper((3,), storage_offset=5, strides=(1,))]
)
def test_tensors_without_their_own_storage_are_rejected_by_name(verb, make):
    with pytest.raises(uni.UsageError, match="a Wrapper, which has no memory of its own"):
        verb(make())
    assert verb(torch.ones(1)).sum() == 1


def test_tensors_of_transformations_are_rejected():
    for transform in (torch.func.vmap, torch.func.functionalize, torch.func.grad):
        with pytest.raises(uni.UsageError, match="a NumPy array or a tensor, received"):
            transform(lambda x: uni.all_gather(x).sum())(torch.ones(3))


def negative():
    """Minus two, which is plus two in memory."""
    x = torch.tensor([1 + 2j]).conj().imag
    assert x.is_neg() and x.item() == -2
    return x


def test_the_negative_bit_is_respected():
    for result in (
        uni.all_gather(negative())[0],
        uni.gather(negative())[0],
        uni.scatter(negative()),
        uni.reduce_scatter(negative()),
        uni.all_to_all(negative()),
        uni.all_to_all([negative()])[0],
    ):
        assert result.tolist() == [-2]
    rows = torch._neg_view(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).t()
    assert torch.equal(uni.all_gather(rows)[0], rows)
    table = uni.ArrayTable(1)
    table.add(negative(), wait=True)
    assert table.get().tolist() == [-2]
    with pytest.raises(uni.UsageError, match="resolve_neg"):
        table.get(out=negative())


@pytest.mark.parametrize("wait", [True, False])
def test_a_view_with_the_negative_bit_can_be_written(wait):
    memory = torch.tensor([1.0, 5.0])
    x = torch._neg_view(memory)
    given = uni.send(torch.tensor([3.0, 4.0]), to=0, wait=False)
    result = uni.recv(x, source=0, wait=wait)
    assert (result if wait else result.wait()) is x and x.tolist() == [3, 4] and memory.tolist() == [-3, -4]
    given.wait()
    for verb in (uni.all_reduce, uni.broadcast, uni.reduce):
        result = verb(x, wait=wait)
        assert (result if wait else result.wait()) is x and x.tolist() == [3, 4]


WRITES = [
    lambda x: uni.all_reduce(x),
    lambda x: uni.broadcast(x),
    lambda x: uni.reduce(x),
    lambda x: (uni.send(torch.ones(3), to=0, wait=False), uni.recv(x, source=0))[0].wait(),
    lambda x: uni.ArrayTable(3).get(out=x),
    lambda x: uni.KeyValueTable(3).get([1], out=x.view(1, 3)),
    lambda x: uni.SparseMatrixTable(1, 3).get_changed(x.view(1, 3)),
    lambda x: uni.GlobalArray((3,), uni.Grid(w=1), split={"w": 0}).window(kernel=1).forward(torch.ones(3), x),
]


@pytest.mark.parametrize("write", WRITES)
def test_autograd_detects_writes_of_a_call(write):
    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    loss = (weight * x).sum()
    write(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


PENDING = [
    lambda x: uni.all_reduce(x, wait=False),
    lambda x: uni.broadcast(x, wait=False),
    lambda x: uni.reduce(x, wait=False),
    lambda x: uni.ArrayTable(3).get_async(out=x),
    lambda x: uni.KeyValueTable(3).get_async([1], out=x.view(1, 3)),
]


@pytest.mark.parametrize("begin", PENDING)
def test_autograd_detects_writes_of_a_background_call(begin):
    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    before = (weight * x).sum()
    pending = begin(x)
    during = (weight * x).sum()
    pending.wait()
    for loss in (before, during):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    (weight * x).sum().backward()


def test_reading_does_not_count_as_a_write():
    x = torch.ones(3)
    for verb in (uni.all_gather, uni.gather, uni.scatter, uni.reduce_scatter, uni.all_to_all):
        verb(x)
    assert x._version == 0
    with torch.inference_mode():
        uni.all_reduce(torch.ones(3))


def test_verbs_run_eagerly_inside_compiled_functions():
    def step(x):
        total = uni.all_reduce(x * 2, wait=False).wait() + uni.all_gather(x)[0]
        return total + uni.broadcast(x + 1) + uni.recv(torch.empty_like(x), source=0)

    pending = [uni.send(torch.ones(3), to=0, wait=False) for _ in range(3)]
    compiled = torch.compile(step, backend="eager")
    wanted = step(torch.arange(3.0))
    for _ in range(2):
        assert torch.equal(compiled(torch.arange(3.0)), wanted)
    for one in pending:
        one.wait()


def test_the_arena_can_be_a_tensor():
    x = uni.empty((2, 3))
    tensor = torch.from_numpy(x)
    tensor.fill_(2)
    assert uni.all_reduce(tensor) is tensor and x.sum() == 12


def test_tensors_on_ranks(run_ranks):
    run_ranks(2, "tensors.py", deadline=600).check()

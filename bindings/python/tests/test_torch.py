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


def test_parameters_are_taken_as_they_are():
    layer = torch.nn.Linear(3, 2)
    assert uni.broadcast(layer.weight) is layer.weight
    assert not uni.gather(layer.weight).requires_grad


def test_what_would_need_a_hidden_copy_is_refused():
    with pytest.raises(uni.UsageError, match="contiguous"):
        uni.all_reduce(torch.ones(3, 4).t())
    assert torch.equal(uni.gather(torch.arange(6).reshape(2, 3).t())[0], torch.arange(6).reshape(2, 3).t())


@pytest.mark.parametrize("bad", [torch.ones(3, dtype=torch.int16), torch.ones(3, dtype=torch.bool)])
def test_other_types_are_refused(bad):
    with pytest.raises(uni.UsageError, match="bfloat16"):
        uni.all_reduce(bad)


@pytest.mark.parametrize("bad", [torch.ones(3, device="meta"), torch.ones(3, 3).to_sparse()])
def test_tensors_without_memory_of_their_own_are_refused(bad):
    with pytest.raises(uni.UsageError, match="lent"):
        uni.all_reduce(bad)


def test_the_arena_can_be_a_tensor():
    x = uni.empty((2, 3))
    tensor = torch.from_numpy(x)
    tensor.fill_(2)
    assert uni.all_reduce(tensor) is tensor and x.sum() == 12


def test_tensors_on_ranks(run_ranks):
    run_ranks(2, "tensors.py", deadline=600).check()

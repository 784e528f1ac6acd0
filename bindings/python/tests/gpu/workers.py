"""Functions whose workers compute on devices: inputs, outputs, variables and collectives stay there."""

import numpy as np

from unisono import functions

workers = functions.fork(3, use_gpu=True)  # on a machine with one device they share it
assert workers == 3

import torch  # noqa: E402  (after fork, which chooses the device)

assert torch.cuda.device_count() == 1
x = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")


def where(x):
    assert x.is_cuda, x.device
    return x.sum(0), x * 2, x.max(0).values, x.mean(0)


f = functions.function(where, ["sum", "gather", "max", "avg"], framework="torch", weighted=True)
data = f.build_inputs(x)
for slices in (1, 2):
    total, doubled, largest, mean = f(data, num_slices=slices)
    assert all(one.is_cuda for one in (total, doubled, largest, mean))
    np.testing.assert_allclose(total.cpu(), x.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(doubled.cpu(), x * 2)
    np.testing.assert_array_equal(largest.cpu(), x.max(0))
    np.testing.assert_allclose(mean.cpu(), x.mean(0), rtol=1e-5, atol=1e-6)

model = torch.nn.Linear(4, 2).cuda()
own = functions.function(lambda x: (model(x) ** 2).mean(), "avg", framework="torch")
loss = own(own.build_inputs(x[:9]))
np.testing.assert_allclose(
    float(loss), float((model(torch.tensor(x[:9]).cuda()) ** 2).mean().detach()), rtol=1e-5
)


def differ():
    with torch.no_grad():
        model.weight.fill_(functions.rank())


functions.function(differ, framework="torch")()
stacked = functions.gather(model.weight)
assert stacked.is_cuda and stacked[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
best = functions.reduce(model.weight, "max", in_place=False)
assert best.is_cuda and float(best[0, 0]) == 2.0 and float(model.weight[0, 0]) == 0.0
functions.all_reduce(model, "avg")
assert functions.gather(model.weight)[:, 0, 0].tolist() == [1.0, 1.0, 1.0]
with torch.no_grad():
    model.weight.fill_(7.0)
functions.broadcast(model)
assert functions.gather(model.weight)[:, 1, 1].tolist() == [7.0, 7.0, 7.0]

# Parts of different lengths are neither cut nor padded.
part = torch.zeros(1, 2, device="cuda")
hold = functions.function(lambda: part.sum(), "sum", framework="torch", shareds=[part])


def grow():
    part.data = torch.full((functions.rank() + 1, 2), float(functions.rank()), device="cuda")


functions.function(grow, framework="torch", shareds=[part])()
assert functions.get_lengths(part) == [1, 2, 3]
parts = functions.gather(part)
assert [tuple(one.shape) for one in parts] == [(1, 2), (2, 2), (3, 2)], parts
assert functions.gather(part, nd_up=0)[:, 0].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
functions.all_gather(part)
assert part.is_cuda and part[:, 1].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
assert float(hold()) == 3 * 16.0
functions.close()
print("functions of 3 workers on one device")

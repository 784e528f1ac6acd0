"""Changes of PyTorch modules and optimizers reach the workers with the next call, or are errors."""

import threading

import numpy as np
import pytest

from unisono import functions


def torch_model():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
            self.register_buffer("shift", torch.ones(3))
            self.stack = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
            self.rate = 1.0

        def forward(self, x):
            return self.stack(self.norm(self.first(x))) * self.rate + self.shift

    torch.manual_seed(0)
    return torch, Net().eval()


def test_changed_modules(pair):
    torch, net = torch_model()
    nn, kind, hooks = torch.nn, type(net), []
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    f = functions.function(lambda x: net(x).detach(), "gather", shareds=[net])

    def tie():
        net.stack[1].weight = net.first.weight

    steps = {
        "submodule": lambda: setattr(net, "first", nn.Linear(3, 3)),
        "parameter": lambda: setattr(net.first, "weight", nn.Parameter(torch.eye(3))),
        "removed parameter": lambda: setattr(net.first, "bias", None),
        "added parameter": lambda: setattr(net.first, "bias", nn.Parameter(torch.ones(3))),
        "buffer": lambda: setattr(net, "shift", torch.full((3,), 2.0)),
        "appended": lambda: net.stack.append(nn.Linear(3, 3)),
        "inserted": lambda: net.stack.insert(1, nn.Linear(3, 3)),
        "deleted": lambda: net.stack.__delitem__(0),
        "tied": lambda: setattr(net.stack[0], "weight", net.first.weight),
        "attribute of a library's module": lambda: setattr(net.norm, "eps", 0.5),
        "attribute": lambda: setattr(net, "rate", 3.0),
        "train": lambda: (net.train(), net.eval()),
        "hook": lambda: hooks.append(net.first.register_forward_hook(lambda *given: given[-1] * 2)),
        "removed hook": lambda: hooks[0].remove(),
        "patched object": lambda: setattr(net.first, "forward", lambda x: x * 5),
        "patched class": lambda: setattr(kind, "forward", lambda self, x: self.first(x) + self.shift),
        "no longer patched": lambda: delattr(net.first, "forward"),
        "assigned state": lambda: net.load_state_dict(
            {name: value + 1 for name, value in net.state_dict().items()}, assign=True
        ),
        "double": lambda: net.double(),
        "float": lambda: net.float(),
    }
    for name, step in {"first": lambda: None, **steps}.items():
        step()
        x = functions.data(rows.astype("float64" if name == "double" else "float32"))
        for _ in range(2):
            with torch.no_grad():
                expected = net(torch.from_numpy(x.data.copy())).numpy()
            np.testing.assert_allclose(f(x), expected, rtol=1e-5, err_msg=name)
            assert f(x).dtype == expected.dtype
            # New parameters can be transferred, even before the next call.
            with torch.no_grad():
                net.shift += 1
            functions.broadcast(net)
    net.stack[0].lock = threading.Lock()
    with pytest.raises(TypeError, match=r"'Linear.lock' \(lock\)"):
        f(x)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_types_are_sent_before_values_are_moved(pair, dtype):
    torch, net = torch_model()
    f = functions.function(lambda x: net.first(x).detach(), "gather", shareds=[net])
    f(functions.data(np.ones((4, 3), "float32")))
    net.to(getattr(torch, dtype))
    with torch.no_grad():
        net.first.weight.fill_(1 / 3)
    functions.broadcast(net)
    gathered = functions.gather(net.first.weight)
    assert gathered.dtype == dtype and (gathered == net.first.weight.detach().numpy()).all()
    assert f(functions.data(np.ones((4, 3), dtype))).dtype == dtype


def test_changed_optimizers(pair):
    torch = pytest.importorskip("torch")
    one, two = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.SGD([one], lr=1.0, momentum=0.5)

    def step(x):
        for parameter in (one, two):
            parameter.grad = x.sum()[None]
        optimizer.step()

    f, x = functions.function(step, shareds=[one, two]), functions.data(np.array([1.0, 2], "float32"))

    def moved():
        before = functions.gather([one, two])
        f(x)
        return [
            (now - then).ravel().tolist()
            for now, then in zip(functions.gather([one, two]), before, strict=True)
        ]

    assert moved() == [[-1, -2], [0, 0]]
    optimizer.param_groups[0]["lr"] = 2.0
    assert moved() == [[-3, -6], [0, 0]], "and the momentum is each worker's own"
    optimizer.add_param_group({"params": [two], "lr": 1.0})
    assert moved() == [[-3.5, -7], [-1, -2]]
    optimizer.load_state_dict(
        torch.optim.SGD([one, two], lr=1.0).state_dict()
        | {
            "param_groups": [
                {**group, "momentum": 0.0, "lr": 4.0} for group in optimizer.state_dict()["param_groups"]
            ]
        }
    )
    assert moved() == [[-4, -8], [-4, -8]]


def test_training_functions_keep_their_original_parameters(pair):
    torch, net = torch_model()
    x = functions.data(np.ones((4, 3), "float32"))

    def changed(change):
        net.first.requires_grad_(True).float()
        step = functions.make_train_function(
            lambda x: net.first(x).square().mean(), net, update_rule="sgd", learning_rate=0.1
        )
        step(x)
        before = net.first.weight.detach().clone()
        change()
        with pytest.raises(ValueError, match=r"expected the parameters that it was made for.*again"):
            step(x)
        return before

    net.first.bias.requires_grad_(False)
    changed(lambda: net.first.bias.requires_grad_(False))
    before = changed(lambda: net.first.weight.requires_grad_(False))
    assert (net.first.weight == before).all() and (
        functions.gather(net.first.weight)[1] == before.numpy()
    ).all()
    changed(lambda: net.double())
    changed(lambda: setattr(net, "first", torch.nn.Linear(3, 3)))

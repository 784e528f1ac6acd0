"""PyTorch's process groups over the backend `unisono`: streams and devices, on a machine without a device."""

import contextlib
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
dist = pytest.importorskip("torch.distributed", reason="this build of PyTorch has no process groups")

from unisono.torch.distributed.versions import OLDEST, version  # noqa: E402

if version() < OLDEST:
    pytest.skip(f"PyTorch {torch.__version__} is older than {OLDEST}", allow_module_level=True)


def test_devices():
    """One backend serves CPU and CUDA tensors, unless a program names another one for a device."""
    from torch.distributed.distributed_c10d import BackendConfig

    def devices(text):
        return BackendConfig(text).get_device_backend_map()

    assert devices("unisono") == {"cpu": "unisono", "cuda": "unisono"}
    assert devices("cpu:unisono,cuda:nccl") == {"cpu": "unisono", "cuda": "nccl"}
    assert dist.Backend.default_device_backend_map["cuda"] == "nccl"


def test_tensors_of_one_call_are_on_one_device():
    from torch._subclasses.fake_tensor import FakeTensorMode

    from unisono.torch.distributed.streams import common_device

    with FakeTensorMode():
        host = torch.empty(2)
        here, there = torch.empty(2, device="cuda:0"), torch.empty(2, device="cuda:1")
    assert common_device("all_gather", 0, [host], [host, host]) is None
    assert common_device("all_gather", 0, [here], [here]) == torch.device("cuda:0")
    assert common_device("barrier", 0, [], []) is None
    for lists in ([[host], [here]], [[here, there], []]):
        with pytest.raises(
            ValueError, match=r"unisono:all_gather: rank 3: expected .* on one device, .*cuda:0"
        ):
            common_device("unisono:all_gather", 3, *lists)


class Device:
    """A recorder of what is done with streams, instead of those of a device."""

    def __init__(self, monkeypatch):
        self.log, self.current, self.capturing = [], self.stream("caller's"), False
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.current)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: self.stream("group's"))
        monkeypatch.setattr(torch.cuda, "stream", self.use)

    def stream(self, name):
        return SimpleNamespace(
            name=name,
            record_event=lambda: self.log.append(f"event on {name}") or "event",
            wait_event=lambda event: self.log.append(f"{name} waits for {event}"),
            synchronize=lambda: self.log.append(f"synchronize {name}"),
        )

    @contextlib.contextmanager
    def use(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


def test_calls_on_devices_are_ordered_with_the_callers_stream(monkeypatch):
    """The order of events, on a device that only records them; tests/gpu checks the effect."""
    from unisono.torch.distributed.streams import Streams

    device, streams = Device(monkeypatch), Streams()
    x = SimpleNamespace(
        layout=torch.strided, record_stream=lambda stream: device.log.append(f"keep x for {stream.name}")
    )

    def job():
        device.log.append(f"call on {device.current.name}")

    streams.ordered(job, torch.device("cuda:0"), [x], background=False)()
    assert device.log == ["call on caller's"]

    device.log.clear()
    run = streams.ordered(job, torch.device("cuda:0"), [x], background=True)
    assert device.log == ["event on caller's"]  # when the call is made, not when it runs
    run()
    assert device.log[1:] == ["group's waits for event", "call on group's", "synchronize group's"]

    def failing():
        raise TimeoutError("late")

    device.log.clear()
    with pytest.raises(TimeoutError):
        streams.ordered(failing, torch.device("cuda:0"), [x], background=True)()
    assert device.log[-1] == "keep x for group's"  # without a wait, which might take as long again

    device.capturing = True
    for background in (False, True):
        with pytest.raises(dist.DistBackendError, match="outside of a CUDA graph"):
            streams.ordered(job, torch.device("cuda:0"), [x], background)


APART = [((0, 8), (8, 16)), ((8, 16), (0, 8)), ((4, 4), (0, 32)), ((0, 0), (0, 0))]
OVERLAPPING = [
    ((0, 8), (0, 32)),
    ((8, 16), (0, 32)),
    ((0, 32), (8, 16)),
    ((0, 9), (8, 16)),
    ((9, 17), (8, 16)),
]


def test_inputs_on_devices_that_overlap_the_output_are_copied():
    from unisono.torch.distributed.tensors import apart

    def memory(span):
        return SimpleNamespace(
            is_cuda=True,
            data_ptr=lambda: span[0],
            numel=lambda: span[1] - span[0],
            element_size=lambda: 1,
            clone=lambda: "copy",
        )

    for spans in (*APART, *OVERLAPPING):
        x, out = map(memory, spans)
        assert apart(x, out) is ("copy" if spans in OVERLAPPING else x), spans

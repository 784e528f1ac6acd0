"""Networks on CUDA tensors that a grid partitions: all results are those of a single rank."""

import copy
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "halo_torch"))

from compare import alone, apart, check
from networks import Decoder, ResNet18, UNet

import unisono as uni
from unisono.torch import Part, RegionDataset, halo_exchange, verify
from unisono.torch.space import fusing

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.deterministic = True

NETWORKS = {
    "ResNet-18": (lambda: ResNet18(4), (2, 3, 45, 37)),
    "U-Net": (lambda: UNet(2), (2, 1, 21, 18)),
    "VAE decoder": (Decoder, (2, 3, 7, 5)),
    "dropout": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.3), nn.Dropout2d(0.3), nn.ReLU()),
        (2, 3, 16, 17),
    ),
}


def networks(axes):
    for name, (make, shape) in NETWORKS.items():
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
            torch.manual_seed(1)
            module = make().to(dtype).cuda()
            whole = torch.randn(shape).to(dtype).cuda()
            expected = alone(module, whole)
            for overlap in (False, True):
                found = apart(uni.Grid(**axes), module, whole, overlap=overlap)
                try:
                    check(expected, found, tolerance)
                except AssertionError as error:
                    raise AssertionError(f"{name} {dtype} overlap={overlap} on {axes}: {error}") from error
                assert all(one is None or one.is_cuda for one in found.values())


def others(axes):
    grid = uni.Grid(**axes)
    torch.manual_seed(2)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)).double().cuda()
    report = verify(network, grid, torch.randn(2, 3, 12, 14, dtype=torch.float64).cuda(), show=False)
    assert report.worst.difference <= 1e-10, str(report)
    # Gradients of an exchange are returned to their owners.
    array = uni.GlobalArray((1, 2, 12, 14), grid)
    window = array.window(kernel=(3, 3), padding=1)
    x = torch.randn(array.local_shape, dtype=torch.float64)
    results = []
    for place in ("cpu", "cuda"):
        mine = x.detach().to(place, copy=True).requires_grad_()
        halo_exchange(mine, window).square().sum().backward()
        results.append(mine.grad.cpu())
    assert torch.equal(*results)
    # Regions of files are copied to the device, and gathered.
    samples = torch.arange(4 * 3 * 12 * 14, dtype=torch.float32).reshape(4, 3, 12, 14)
    dataset = RegionDataset(samples.numpy(), grid)
    loader = torch.utils.data.DataLoader(dataset, 2, pin_memory=True)
    model = uni.torch.spatial(nn.Identity(), grid)
    batch = next(iter(loader)).to("cuda", non_blocking=True)
    assert torch.equal(model(batch).gather().cpu(), samples[:2])


def streams(axes, tolerance=1e-5):
    """On a separate stream, repeatedly in the same memory: nothing is used before it has arrived."""
    grid = uni.Grid(**axes)
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU()]
    module = nn.Sequential(*layers, nn.Conv2d(32, 2, 3, padding=1)).cuda()
    whole = torch.randn(4, 3, 256, 192).cuda()
    region = uni.GlobalArray((4, 2, 256, 192), grid).region
    model, part = uni.torch.spatial(module, grid), Part.of(whole, grid).local.contiguous()
    side = torch.cuda.Stream()
    for memory_format in (torch.contiguous_format, torch.channels_last):
        with torch.no_grad():
            expected = [module(sign * whole)[region] for sign in (1, -1)]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x = part.contiguous(memory_format=memory_format)
                found = [model((1 - 2 * (turn % 2)) * x).local for turn in range(12)]
            torch.cuda.current_stream().wait_stream(side)
        for turn, one in enumerate(found):
            torch.testing.assert_close(one, expected[turn % 2], rtol=tolerance, atol=tolerance)


@contextmanager
def kernels():
    """Fuses a convolution and its ReLU into one kernel, and records these calls in a list."""
    calls, kernel = [], torch.cudnn_convolution_relu

    def cudnn_convolution_relu(*arguments):
        calls.append(arguments[0].shape)
        return kernel(*arguments)

    torch.cudnn_convolution_relu, torch.backends.cudnn.deterministic = cudnn_convolution_relu, False
    try:
        yield calls
    finally:
        torch.cudnn_convolution_relu, torch.backends.cudnn.deterministic = kernel, True


@torch.no_grad()
def rectified(axes):
    """In inference a convolution and its ReLU are one kernel, with the result of two."""
    grid = uni.Grid(**axes)
    torch.manual_seed(4)
    inner = nn.Sequential(nn.Conv2d(16, 16, 5, padding=2, bias=False), nn.ReLU(inplace=True))
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), inner, nn.Conv2d(16, 8, 3, padding=1)]
    single = nn.Sequential(*layers).cuda()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        module = copy.deepcopy(single).to(dtype)
        whole = torch.randn(2, 3, 45, 38).to(dtype).cuda()
        expected = {"output": module(whole)}
        with kernels() as calls:
            found = {"output": uni.torch.spatial(module, grid)(Part.of(whole, grid).local).gather()}
        check(expected, found, tolerance)
        assert calls, f"no kernel for {dtype}"
    # A NaN is propagated as without fusion.
    whole = torch.randn(2, 3, 45, 38).cuda()
    whole[1, 2, 20, 20] = float("nan")
    expected = single(whole)
    assert expected.isnan().any() and not expected.isnan().all()
    with kernels():
        found = uni.torch.spatial(single, grid)(Part.of(whole, grid).local).gather()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    # A hook on the intermediate value still gets it.
    seen = []
    for one in (single[0], inner[0]):
        one.register_forward_hook(lambda _layer, _inputs, output: seen.append(output))
    with kernels() as calls:
        uni.torch.spatial(single, grid)(Part.of(whole, grid).local)
    assert not calls and any((one.local < 0).any() for one in seen if not one.placeholder)
    return fusing.counts()


def threads():
    """Ranks that are threads, each of which runs its own backward."""
    for name, (make, shape) in NETWORKS.items():
        torch.manual_seed(1)
        module, whole = make().double().cuda(), torch.randn(shape).double().cuda()
        expected = alone(module, whole)
        with uni.local_grid(h=2, w=1) as local:
            for found in local.run(apart, module, whole):
                try:
                    check(expected, found, 1e-10)
                except AssertionError as error:
                    raise AssertionError(f"{name} on two threads: {error}") from error


if __name__ == "__main__":
    if sys.argv[1:] == ["threads"]:
        threads()
        print("networks on 2 threads of one process")
        sys.exit()
    world = uni.init()
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.size))
    for axes in [{"h": world.size, "w": 1}, {"h": 2, "w": world.size // 2}][: world.size // 2]:
        networks(axes)
        others(axes)
        streams(axes)
        used = rectified(axes)
        with kernels():
            streams(axes, 1e-4)
    if world.rank == 0:
        print(f"networks on {world.size} ranks; {used[0]} of {used[1]} kernels rectify as ReLU does")

"""Samples that ranks partition in space: the same order on all ranks, and parts that cover a sample."""

import copy
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, StackDataset

import unisono as uni
from unisono.torch import RegionDataset, SpatialSampler, spatial

torch.set_num_threads(1)
FOLDER = sys.argv[1]
# A process that a loader spawns imports this file again, and must not become a rank.
if __name__ == "__main__":
    world = uni.init()
    N = world.size
IMAGES, MASKS = f"{FOLDER}/images.npy", f"{FOLDER}/masks.npy"


def grids():
    """Space alone; and, if the number of ranks allows it, samples too."""
    yield uni.Grid(h=-1)
    yield uni.Grid(h=1, w=-1)
    if N % 2 == 0:
        yield uni.Grid(data=2, h=-1)


def orders():
    """Ranks with the same coordinate on `data` have the same order; together they have every sample once."""
    for grid in grids():
        replicas = grid.axes.get("data", 1)
        epochs = []
        for epoch, seed in [(0, 0), (1, 0), (0, 5)]:
            sampler = SpatialSampler(range(12), grid, seed=seed)
            sampler.set_epoch(epoch)
            mine = list(sampler)
            assert mine == list(sampler) and len(mine) == len(sampler) == 12 // replicas
            gathered = uni.all_gather(np.array(mine))
            for rank in range(N):
                same = grid.coordinates_of(rank).get("data", 0) == grid.coordinates.get("data", 0)
                assert (gathered[rank].tolist() == mine) == same
            assert sorted({*gathered.ravel().tolist()}) == list(range(12))
            epochs.append(mine)
        assert epochs[0] != epochs[1] and epochs[0] != epochs[2]
        assert (
            list(SpatialSampler(range(5), grid, shuffle=False))[:2]
            == list(range(5))[grid.coordinates.get("data", 0) :: replicas][:2]
        )


def loaders():
    """A loader returns the region of the full sample, with and without prefetching processes."""
    images, masks = np.load(IMAGES), np.load(MASKS)
    for grid in grids():
        first = RegionDataset(IMAGES, grid, halo={[axis for axis in grid.axes if axis != "data"][-1]: 1})
        second = RegionDataset(MASKS, grid)
        dataset = StackDataset(first, second)
        sampler = SpatialSampler(dataset, grid, seed=2)
        batch = second.batch_array(4 * grid.axes.get("data", 1))
        for workers, start in [(0, None), (2, "fork"), (1, "spawn")]:
            # Spawning takes seconds: once is enough.
            if start == "spawn" and (N != 2 or grid.axes != {"h": N}):
                continue
            options = {
                "num_workers": workers,
                "multiprocessing_context": start,
                "timeout": 60 if workers else 0,
            }
            seen = []
            for padded, mask in DataLoader(dataset, 4, sampler=sampler, **options):
                assert batch.local_shape == (4, *mask.shape[1:])
                assert tuple(padded.shape[1:]) == first.window.padded_shape
                seen += list(zip(padded, mask, strict=True))
            assert len(seen) == len(sampler)
            for index, (padded, mask) in zip(sampler, seen, strict=True):
                np.testing.assert_array_equal(mask, masks[index][second.array.region])
                expected = first.window.forward(images[index][first.array.region])
                np.testing.assert_array_equal(padded, expected)


def training():
    """Parts in space, and samples along `data`, give the gradients of one process with the full batch."""
    images = torch.from_numpy(np.load(IMAGES)).double()
    for grid in grids():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 5, stride=2, padding=2), torch.nn.BatchNorm2d(4))
        net.double()  # the bias before a normalization has no gradient but rounding errors
        single = copy.deepcopy(net)
        dataset = RegionDataset(IMAGES, grid)
        loader = DataLoader(dataset, 2, sampler=SpatialSampler(dataset, shuffle=False))
        output = spatial(net, grid)(next(iter(loader)).double())
        output.pow(3).sum().backward()

        replicas = grid.axes.get("data", 1)
        batch = [index for first in range(replicas) for index in range(first, 2 * replicas, replicas)]
        expected = single(images[batch])
        expected.pow(3).sum().backward()
        torch.testing.assert_close(output.gather(), expected, rtol=1e-9, atol=1e-9)
        for ours, theirs in zip(net.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)


def mistakes():
    """If ranks differ, all of them raise an error."""
    grid = uni.Grid(h=-1)
    if N > 1:
        try:
            SpatialSampler(range(7), grid, seed=min(world.rank, 1))
        except uni.UsageError as error:
            assert "the same seed" in str(error) and f"rank {world.rank}:" in str(error)
        else:
            raise AssertionError("different seeds were taken")
    try:
        SpatialSampler(range(7))
    except uni.UsageError as error:
        assert "pass grid=" in str(error)
    else:
        raise AssertionError("no grid was taken")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        globals()[name]()
        uni.barrier()

"""Regions of files: equal to those of the full sample, and nothing else is read."""

import itertools
import os
import pickle
import re

import numpy as np
import pytest

import unisono as uni
from unisono.halo import RegionReader

MODES = {"zero": "constant", "replicate": "edge", "reflect": "reflect", "periodic": "wrap"}
GRIDS = [{"h": 1, "w": 1}, {"h": 3, "w": 1}, {"h": 2, "w": 2}, {"h": 2, "w": 3}, {"data": 2, "h": 2}]


def samples(shape, dtype="float32"):
    return np.random.default_rng(3).integers(-90, 90, shape).astype(dtype)


@pytest.mark.parametrize("axes", GRIDS, ids=str)
def test_regions_equal_those_of_the_full_sample(axes, tmp_path):
    whole = samples((3, 2, 9, 7))
    np.save(tmp_path / "whole.npy", whole)
    with uni.local_grid(**axes) as local:
        for grid, order in itertools.product(local.grids, "CF"):
            np.save(tmp_path / "ordered.npy", np.asarray(whole, order=order))
            reader = RegionReader(tmp_path / "ordered.npy", grid)
            assert len(reader) == 3 and reader.window is None
            for index in (0, 2, -1):
                read = reader.read(index)
                np.testing.assert_array_equal(read, whole[index][reader.array.region])
                assert read.flags.c_contiguous and read.flags.writeable and read.dtype == whole.dtype


@pytest.mark.parametrize("axes", GRIDS, ids=str)
@pytest.mark.parametrize("boundary", [*MODES, 7, {"w": "periodic"}, {"h": ("reflect", -1.5)}], ids=str)
def test_a_halo_from_the_file_equals_that_of_the_neighbours(axes, boundary):
    whole = samples((2, 3, 8, 9), "float64")
    if isinstance(boundary, dict) and not boundary.keys() <= axes.keys():
        boundary = "reflect"

    def rank(grid):
        part = RegionReader(whole, grid).read(1)
        for halo in (1, {"h": (3, 0)}, {"h": (0, 1)}):
            reader = RegionReader(whole, grid, halo=halo, boundary=boundary)
            np.testing.assert_array_equal(reader.read(1), reader.window.forward(part))
        # The windows of a model's first layer: strides, dilation, even kernels.
        for kernel, stride, dilation in [(4, 3, 1), (3, 2, 2)]:
            window = reader.array.window(kernel, stride, 2, dilation, boundary)
            exact = RegionReader(whole, grid, halo=window)
            assert exact.shape == window.padded_shape
            np.testing.assert_array_equal(exact.read(-1), window.forward(part))

    with uni.local_grid(**axes) as local:
        local.run(rank)


def test_all_boundaries_against_numpy_where_halos_are_wider_than_parts():
    whole = samples((1, 5, 6))
    with uni.local_grid(h=3, w=2) as local:
        for grid, (boundary, mode) in itertools.product(local.grids, MODES.items()):
            reader = RegionReader(whole, grid, halo={"h": 4, "w": (2, 3)}, boundary=boundary)
            around = np.pad(whole[0], [(4, 4), (2, 3)], mode)
            rows, columns = reader.array.region
            expected = around[rows.start : rows.stop + 8, columns.start : columns.stop + 5]
            np.testing.assert_array_equal(reader.read(0), expected)


def test_more_ranks_than_rows_and_uneven_parts():
    whole = samples((4, 3, 8))
    with uni.local_grid(h=5) as local:
        for grid in local.grids:
            reader = RegionReader(whole, grid, halo=1)
            region = reader.array.region
            assert reader.read(3).shape == ((3, 8) if grid.rank < 3 else (0, 8))
            np.testing.assert_array_equal(reader.read(3)[1:-1], whole[3][region][:1])
            uneven = RegionReader(whole, grid, sizes={"h": [0, 2, 0, 1, 0]}, halo={"h": 1}, boundary=9)
            around = np.pad(whole[0], [(1, 1), (0, 0)], constant_values=9)
            rows = uneven.array.region[0]
            expected = around[rows.start : rows.stop + 2] if rows.start < rows.stop else around[:0]
            np.testing.assert_array_equal(uneven.read(0), expected)


def test_three_dimensions_and_axes_of_any_name():
    whole = samples((2, 5, 6, 7))
    with uni.local_grid(d=2, h=1, w=2) as local:
        for grid in local.grids:
            reader = RegionReader(whole, grid)
            np.testing.assert_array_equal(reader.read(0), whole[0][reader.array.region])
    with uni.local_grid(lat=2, lon=2) as local:
        reader = RegionReader(whole, local.grids[3], split={"lat": 0, "lon": 2}, halo={"lon": (1, 0)})
        np.testing.assert_array_equal(reader.read(1), whole[1][3:5, :, 3:7])


def test_one_file_for_each_sample_and_one_sample_alone(tmp_path):
    whole = samples((3, 6, 4), ">i2")
    paths = [tmp_path / f"{number}.npy" for number in range(3)]
    for path, sample in zip(paths, whole, strict=True):
        np.save(path, sample)
    with uni.local_grid(h=2) as local:
        reader = RegionReader(paths, local.grids[1])
        assert len(reader) == 3 and reader.dtype.isnative
        np.testing.assert_array_equal(reader.read(2), whole[2, 3:])
        alone = RegionReader(paths[0], local.grids[1], stacked=False)
        assert len(alone) == 1
        np.testing.assert_array_equal(alone.read(0), whole[0, 3:])


class Recorder:
    """An array that records which of its elements were requested."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.asked = np.zeros(array.shape, bool)

    def __getitem__(self, index):
        self.asked[index] = True
        return self.array[index]


def test_only_the_region_is_requested():
    whole = Recorder(samples((3, 2, 12, 10)))
    with uni.local_grid(h=2, w=2) as local:
        for grid in local.grids:
            whole.asked[:] = False
            reader = RegionReader(whole, grid, halo={"w": 2})
            assert not whole.asked.any()
            reader.read(1)
            _, rows, columns = reader.array.region
            expected = np.zeros(whole.shape, bool)
            expected[1, :, rows, max(columns.start - 2, 0) : columns.stop + 2] = True
            np.testing.assert_array_equal(whole.asked, expected)


def resident(path):
    """The number of bytes of a file that this process has mapped and touched."""
    with open("/proc/self/smaps") as file:
        blocks = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", file.read())
    sizes = [re.search(r"^Rss: +(\d+) kB", one, re.MULTILINE) for one in blocks if str(path) in one]
    return sum(1024 * int(size.group(1)) for size in sizes)


def test_only_the_regions_pages_of_a_memory_map_are_touched(tmp_path):
    path = tmp_path / "volume.npy"
    whole = np.lib.format.open_memmap(path, "w+", "float32", (4, 1024, 1024))
    whole[:] = 1
    del whole
    with uni.local_grid(h=4) as local:
        reader = RegionReader(path, local.grids[2])
        before = resident(path)
        assert reader.read(1).sum() == 256 * 1024
        touched = resident(path) - before
    # A quarter of one sample is 1 MiB; the kernel maps up to 64 KiB around what is touched.
    assert touched + before >= 1 << 20 and touched <= (1 << 20) + (1 << 18), touched


def test_zarr_reads_only_the_chunks_of_the_region(tmp_path):
    zarr = pytest.importorskip("zarr", reason="no zarr here: pip install zarr")
    whole = samples((2, 12, 16))
    path = tmp_path / "volume.zarr"
    stored = zarr.create_array(store=str(path), shape=whole.shape, chunks=(1, 3, 4), dtype="float32")
    stored[:] = whole
    chunks = {tuple(map(int, one.parts[-3:])): one for one in path.glob("c/*/*/*")}
    assert len(chunks) == 2 * 4 * 4
    with uni.local_grid(h=2, w=2) as local:
        reader = RegionReader(path, local.grids[1], halo={"w": 1})
        # Rank 1 has the rows 0:6 and the columns 8:16, and the column 7 as its halo.
        wanted = {(1, row, column) for row in (0, 1) for column in (1, 2, 3)}
        for place in chunks.keys() - wanted:
            chunks[place].write_bytes(b"this cannot be decoded")
        expected = np.pad(whole[1, :6, 7:], [(0, 0), (0, 1)])
        np.testing.assert_array_equal(reader.read(1), expected)
        np.testing.assert_array_equal(RegionReader(stored, local.grids[1]).read(1), whole[1, :6, 8:])
        with pytest.raises(RuntimeError):  # the other sample's chunks are those that cannot be decoded
            reader.read(0)


def test_readers_are_pickled_without_their_ranks(tmp_path):
    whole = samples((2, 6, 6))
    np.save(tmp_path / "whole.npy", whole)
    with uni.local_grid(h=2) as local:
        reader = RegionReader(tmp_path / "whole.npy", local.grids[1], halo=1)
        reader.read(0)
        copy = pickle.loads(pickle.dumps(reader))
        assert len(pickle.dumps(reader)) < 5000
        np.testing.assert_array_equal(copy.read(1), reader.read(1))
        with pytest.raises(uni.UsageError, match=f"process {os.getpid()}"):
            copy.array  # noqa: B018


def window_over_another(grid):
    return uni.GlobalArray((5, 5), grid, {"h": 0}).window(kernel=3)


@pytest.mark.parametrize(
    "source, options, words",
    [
        ([], {}, "one sample or more"),
        ([np.zeros((4, 4)), np.zeros((4, 5))], {}, "like the first"),
        (np.zeros((2, 4, 4)), {"halo": {"w": 1}}, "halos for the axes h"),
        (np.zeros((2, 4, 4)), {"halo": window_over_another}, "a window over"),
        (np.zeros((2, 4, 4), "u1"), {"halo": 1, "boundary": -1}, "that uint8 holds, received -1.0"),
        (np.zeros((2, 4, 4), "i4"), {"halo": 1, "boundary": float("nan")}, "that int32 holds, received nan"),
        (np.zeros((2, 4, 4), "u2"), {"halo": 1, "boundary": 2.5}, "from 0 to 65535"),
        (np.zeros(3), {}, "for the axis h"),
        (7, {}, "a path or an array"),
        ("letters.npy", {}, "plain numbers"),
        ("letters.txt", {}, "a .npy file or a zarr array"),
    ],
    ids=str,
)
def test_mistakes_are_named(source, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letters.txt").write_text("a")
    np.save(tmp_path / "letters.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    grid = (uni.init(), uni.Grid(h=1))[1]
    options = {name: value(grid) if callable(value) else value for name, value in options.items()}
    with pytest.raises(uni.UsageError, match=words):
        RegionReader(source, grid, **options)
    with pytest.raises(FileNotFoundError):
        RegionReader("nowhere.zarr", grid)
    with pytest.raises(IndexError, match="2 samples"):
        RegionReader(np.zeros((2, 3, 3)), grid).read(2)


def test_a_group_of_zarr_arrays_is_not_an_array(tmp_path):
    zarr = pytest.importorskip("zarr", reason="no zarr here: pip install zarr")
    uni.init()
    group = zarr.open_group(str(tmp_path / "group.zarr"), mode="w")
    group.create_array("images", shape=(2, 4, 4), chunks=(1, 2, 4), dtype="uint8")
    with pytest.raises(uni.UsageError, match="add an array's name"):
        RegionReader(tmp_path / "group.zarr", uni.Grid(h=1))
    assert RegionReader(tmp_path / "group.zarr/images", uni.Grid(h=1)).read(1).shape == (4, 4)

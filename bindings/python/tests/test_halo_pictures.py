"""Pictures of grids, parts and halos: well-formed, with every rank in them, the same each time."""

import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import unisono as uni

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "pictures"


def pictures():
    """The pictures of the guide."""
    with uni.local_grid(h=2, w=2) as grid:
        image = uni.GlobalArray((16, 20), grid.grids[0])
        window = image.window(kernel=5, padding=2)
        yield "halos-parts.svg", grid.show(image)
        yield "halos-window.svg", grid.show(window)
        coarse = window.output.window(kernel=4, stride=3, padding=1)
        yield "halos-stride.svg", grid.show(coarse, rank=2)
        stem = uni.GlobalArray((2, 3, 32, 32), grid.grids[0]).window((7, 7), stride=2, padding=3)
        yield "halos-stem.svg", grid.show(stem, rank=3)
    with uni.local_grid(lat=1, lon=4) as grid:
        globe = uni.GlobalArray((12, 24), grid.grids[0], split={"lat": 0, "lon": 1})
        window = globe.window((3, 3), padding=1, boundary={"lat": "replicate", "lon": "periodic"})
        yield "halos-globe.svg", grid.show(globe)
        yield "halos-longitude.svg", grid.show(window, rank=0)


def test_the_pictures_of_the_guide_are_up_to_date():
    for name, picture in pictures():
        if os.environ.get("UNISONO_WRITE_PICTURES"):
            GUIDE.mkdir(exist_ok=True)
            picture.save(GUIDE / name)
        assert (GUIDE / name).read_text() == picture.svg, f"{name}: redraw it with UNISONO_WRITE_PICTURES=1"
        ElementTree.fromstring(picture.svg)


def texts(picture):
    return [
        node.text for node in ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.mark.parametrize(
    "axes, shape, split",
    [
        ({"x": 3}, (10,), {"x": 0}),
        ({"x": 5}, (3,), {"x": 0}),
        ({"h": 2, "w": 3}, (8, 64, 9), {"h": 0, "w": 2}),
        ({"h": 4}, (2, 3, 16, 16), {"h": 2}),
        ({"d": 2, "h": 2, "w": 2}, (4, 6, 6), None),
        ({"data": 2, "w": 2}, (4, 6), {"w": 1}),
    ],
    ids=str,
)
def test_every_kind_of_grid_can_be_drawn(axes, shape, split, tmp_path):
    with uni.local_grid(**axes) as grid:
        array = uni.GlobalArray(shape, grid.grids[0], split)
        window = array.window(kernel=3, padding=1, boundary="reflect")
        for what in [None, array, window]:
            picture = grid.show(what)
            picture.save(tmp_path / "picture.svg")
            assert (tmp_path / "picture.svg").read_text() == picture._repr_svg_()
            assert str(picture).strip()
        for rank in range(grid.size):
            ElementTree.fromstring(grid.show(window, rank=rank).svg)
        assert {str(rank) for rank in range(grid.size)} <= set(texts(grid.show()))


def test_text_for_terminals():
    with uni.local_grid(h=2, w=2) as grid:
        array = uni.GlobalArray((5, 6), grid.grids[0])
        assert str(grid.show(array)).splitlines() == [
            "      0:3   3:6",
            "    +-----+-----+",
            "0:3 |  0  |  1  |",
            "    +-----+-----+",
            "3:5 |  2  |  3  |",
            "    +-----+-----+",
            "(5, 6) on h=2, w=2",
        ]
        window = array.window(kernel=3, padding=1)
        assert str(grid.show(window, rank=3)).splitlines() == [
            "rank 3 has [3:5, 3:6] and needs [2:6, 2:7]:",
            "1 from rank 0, 3 from rank 1, 2 from rank 2",
        ]
    with uni.local_grid(h=2) as other, pytest.raises(uni.UsageError, match="its own grid"):
        other.show(array)

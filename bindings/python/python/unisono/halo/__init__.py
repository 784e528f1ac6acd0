"""Halos: one array partitioned between ranks in space, with exchange of the elements at the borders."""

from unisono.halo.global_array import GlobalArray
from unisono.halo.grid import Grid
from unisono.halo.local import LocalGrid, local_grid
from unisono.halo.picture import Picture
from unisono.halo.reader import RegionReader
from unisono.halo.window import Exchange, Window

__all__ = ["Exchange", "GlobalArray", "Grid", "LocalGrid", "Picture", "RegionReader", "Window", "local_grid"]

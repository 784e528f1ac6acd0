"""Common code of the programs for embeddings: sizes, initial rows, and the number of adds."""

import torch

ROWS, DIM = 30, 5
# As `DistributedDataParallel` averages the other gradients.
TOGETHER = "bsp:mean"


def adds(module):
    """The adds of this worker, after those in the background."""
    module.table.flush()
    return module.table.stats().adds


def initial(rows=ROWS):
    return torch.randn(rows, DIM, generator=torch.Generator().manual_seed(3))

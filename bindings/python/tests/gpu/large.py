"""Arrays of many chunks and odd lengths, at odd addresses: every element arrives, and is added once."""

import torch

import unisono as uni

world = uni.init()
rank, size = world.rank, world.size

for dtype, count in ((torch.float32, 17_500_003), (torch.float16, 20_000_001), (torch.uint8, 70_000_001)):
    # Integers for which no sum of four ranks rounds or overflows.
    base = torch.arange(count + 1, device="cuda").remainder_(50).to(dtype)
    for start in (0, 1):
        what = (dtype, start)
        part = base[start : start + count]
        total = part * size + sum(range(size))

        def mine(of=base, start=start, count=count):
            return (of + rank)[start : start + count]

        x = mine()
        world.all_reduce(x)
        assert torch.equal(x, total), what
        x = mine()
        world.reduce(x, root=size - 1)
        assert torch.equal(x, total if rank == size - 1 else mine()), what
        assert torch.equal(world.reduce_scatter(mine()), torch.tensor_split(total, size)[rank]), what
        gathered = world.all_gather(mine())
        assert all(torch.equal(gathered[one], part + one) for one in range(size)), what
        x = mine()
        world.broadcast(x, root=size - 1)
        assert torch.equal(x, part + (size - 1)), what
        spread = world.scatter(mine() if rank == 0 else None)
        assert torch.equal(spread, torch.tensor_split(part, size)[rank]), what
        del gathered, spread, x
path = world.cuda_path()
if rank == 0:
    print(f"large arrays on {size} ranks by {path}")

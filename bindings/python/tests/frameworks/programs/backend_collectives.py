"""Every collective of torch.distributed over the backend `unisono`, against naive computations."""

from datetime import timedelta
from functools import reduce

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from backend_common import fails, main, put, same, values

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
ALL = [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, *FLOAT8, torch.bool]
SIZES = [0, 1, 7, 1001]


def naive(op, rows):
    """The reduction of all ranks' values, computed in a type that is exact for them."""
    dtype = rows[0].dtype
    if op in BITWISE:
        return reduce(BITWISE[op], rows)
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    stacked = torch.stack([row.to(wide) for row in rows])
    if op == ReduceOp.SUM:
        made = stacked.sum(0)
    elif op == ReduceOp.AVG:
        made = stacked.sum(0) / len(rows)
        made = made if dtype.is_floating_point or dtype.is_complex else made.trunc().to(torch.int64)
    elif op == ReduceOp.PRODUCT:
        made = stacked.prod(0)
    else:
        made = stacked.amin(0) if op == ReduceOp.MIN else stacked.amax(0)
    return made != 0 if dtype is torch.bool else made.to(dtype)


BITWISE = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
ARITHMETIC = [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]


def operations(dtype):
    """The operations that are defined for a type, and whose results are exact here."""
    if dtype.is_complex:
        return [ReduceOp.SUM]
    if dtype in FLOAT8:
        return [ReduceOp.MIN, ReduceOp.MAX]
    if dtype.is_floating_point:
        return [ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX]
    if dtype is torch.bool:
        return [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, *BITWISE]
    return [*ARITHMETIC, *(BITWISE if dtype not in UNSIGNED else [])]


def reductions(rank, size):
    for dtype in ALL:
        for count in SIZES:
            rows = [values(other, dtype, count) for other in range(size)]
            blocks = [values(other, dtype, count * size, seed=1) for other in range(size)]
            for op in operations(dtype):
                expected = naive(op, rows)
                x = put(rows[rank])
                dist.all_reduce(x, op)
                same(x, expected)
                x, root = put(rows[rank]), size - 1
                dist.reduce(x, root, op)
                same(x, expected if rank == root else x)
                expected = naive(op, blocks).view(size, count)[rank]
                out = torch.empty(count, dtype=dtype)
                dist.reduce_scatter_tensor(out, put(blocks[rank]), op)
                same(out, expected)
                out = torch.empty(count, dtype=dtype)
                dist.reduce_scatter(out, list(put(blocks[rank]).view(size, count).unbind()), op)
                same(out, expected)


def means(rank, size):
    """AVG of floats and PREMUL_SUM round; the same on every rank."""
    for dtype in FLOATS:
        x = torch.full((5,), float(rank), dtype=dtype)
        dist.all_reduce(x, ReduceOp.AVG)
        same(x, torch.full((5,), (size - 1) / 2, dtype=dtype))
    x = torch.full((3,), float(rank + 1))
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    same(x, torch.full((3,), size * (size + 1) / 4))


def halves(rank, size):
    """Sums over the first and over the last ranks that their type cannot hold, while it holds the total."""
    for dtype, four in ((torch.float16, (40000, 40000, -40000, -40000)), (torch.bfloat16, (256, 1, 1, -256))):
        values = [float(value) for value in four][:size]
        total = float(sum(values[:size])) if size == 4 else values[0]
        mine = values[rank] if size == 4 else total * (rank == 0)
        x = torch.full((3,), mine, dtype=dtype)
        dist.all_reduce(x)
        same(x, torch.full((3,), total, dtype=dtype))
        out, x = torch.empty(5, dtype=dtype), torch.full((5 * size,), mine, dtype=dtype)
        dist.reduce_scatter_tensor(out, x)
        same(out, torch.full((5,), total, dtype=dtype))
        x = torch.full((3,), mine, dtype=dtype)
        dist.reduce(x, size - 1, ReduceOp.AVG)
        same(x, torch.full((3,), total / size if rank == size - 1 else mine, dtype=dtype))


def bits(rank, size):
    """Sums that round are the same bits on every rank, whatever their size."""
    for dtype in FLOATS:
        for count in (1, 5, 1001, 70_001, 3_000_001):
            x = torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)
            dist.all_reduce(x)
            other = x.clone()
            dist.broadcast(other, size - 1)
            same(x, other)


def as_gloo(rank, size):
    """The results of Gloo, where it is exact and has the type."""
    gloo = dist.new_group(backend="gloo")
    kinds = [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64]
    for dtype in kinds:
        rows = torch.stack([values(rank, dtype, 301, seed=other) for other in range(size)])
        calls = [
            lambda x, group, op=op: dist.all_reduce(x, op, group=group) for op in (ReduceOp.SUM, ReduceOp.MAX)
        ]
        calls += [
            lambda x, group: dist.broadcast(x, size - 1, group=group),
            lambda x, group: dist.all_gather_into_tensor(x.view(-1), x[rank].clone(), group=group),
            lambda x, group: dist.all_to_all_single(x, x.clone(), group=group),
            lambda x, group: dist.all_gather(list(x), x[0].clone(), group=group),
            lambda x, group: dist.reduce_scatter_tensor(x[0], x.flatten(), group=group),
            lambda x, group: dist.gather(x[0].clone(), list(x) if rank == 0 else None, group=group),
            lambda x, group: dist.scatter(x[0], list(x.clone()) if rank == 0 else None, group=group),
        ]
        for call in calls:
            x, y = rows.clone(), rows.clone()
            call(x, None)
            call(y, gloo)
            same(x, y)
    dist.destroy_process_group(gloo)


def moves(rank, size):
    for dtype in ALL:
        for count in SIZES:
            rows = [values(other, dtype, count) for other in range(size)]
            for root in range(size):
                x = put(rows[rank])
                dist.broadcast(x, root)
                same(x, rows[root])
                outs = [torch.empty(count, dtype=dtype) for _ in range(size)] if rank == root else None
                dist.gather(put(rows[rank]), outs, dst=root)
                if rank == root:
                    [same(*pair) for pair in zip(outs, rows, strict=True)]
                out = torch.empty(count, dtype=dtype)
                dist.scatter(out, [put(row) for row in rows] if rank == root else None, src=root)
                same(out, rows[rank])
            outs = [torch.empty(count, dtype=dtype) for _ in range(size)]
            dist.all_gather(outs, put(rows[rank]))
            [same(*pair) for pair in zip(outs, rows, strict=True)]
            out = torch.empty(size * count, dtype=dtype)
            dist.all_gather_into_tensor(out, put(rows[rank]))
            same(out, torch.cat(rows))
            # The input as a part of the output.
            whole = torch.zeros(size, count, dtype=torch.float32).to(dtype)
            whole[rank].copy_(rows[rank])
            dist.all_gather_into_tensor(whole, whole[rank])
            same(whole, torch.stack(rows))


def exchanges(rank, size):
    """all_to_all with blocks of all sizes, also of none."""
    for dtype in ALL:
        for count in SIZES:
            blocks = [values(other, dtype, count * size).view(size, count) for other in range(size)]
            outs = [torch.empty(count, dtype=dtype) for _ in range(size)]
            dist.all_to_all(outs, [put(one) for one in blocks[rank]])
            [same(out, block[rank]) for out, block in zip(outs, blocks, strict=True)]
            out = torch.empty(size * count, dtype=dtype)
            dist.all_to_all_single(out, put(blocks[rank].reshape(-1)))
            same(out, torch.cat([block[rank] for block in blocks]))
        # Rank r sends r + 2 * other rows of three elements to each other rank.
        sent = [rank + 2 * other for other in range(size)]
        received = [other + 2 * rank for other in range(size)]
        table = [
            values(one, dtype, 3 * sum(one + 2 * other for other in range(size))).view(-1, 3)
            for one in range(size)
        ]
        out = torch.empty(sum(received), 3, dtype=dtype)
        dist.all_to_all_single(out, put(table[rank]), received, sent)
        parts = [table[one].split([one + 2 * o for o in range(size)])[rank] for one in range(size)]
        same(out, torch.cat(parts))
        outs = [torch.empty(n, 3, dtype=dtype) for n in received]
        dist.all_to_all(outs, list(put(table[rank]).split(sent)))
        [same(*pair) for pair in zip(outs, parts, strict=True)]


def views(rank, size):
    """Tensors with gaps, another order, and those that need a gradient."""
    base = torch.arange(24.0).view(4, 6)
    for view in (lambda t: t[:, ::2], lambda t: t.t(), lambda t: t[1:3, 1:4]):
        x = base.clone() * (rank + 1)
        before = x.clone()
        dist.all_reduce(view(x))
        expected = before.clone()
        view(expected).copy_(view(base) * (size * (size + 1) / 2))
        same(x, expected)
        dist.broadcast(view(x), 0)
        outs = [torch.zeros(6, 4).t() for _ in range(size)]
        dist.all_gather(outs, (base * (rank + 1)))
        for other, out in enumerate(outs):
            same(out, base * (other + 1))
    leaf = torch.full((3,), float(rank), requires_grad=True)
    dist.broadcast(leaf, size - 1)
    assert leaf.tolist() == [size - 1.0] * 3 and leaf.requires_grad
    dist.all_reduce(torch.tensor(3))  # without axes
    x = torch.tensor(rank)
    dist.all_reduce(x)
    assert x.item() == size * (size - 1) // 2


def asynchronous(rank, size):
    """Calls in the background run in order; futures return tensors or raise."""
    tensors = [torch.full((1000,), float(rank + index)) for index in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    total = torch.full((3,), float(rank))
    dist.all_reduce(total)  # waits for those before
    same(total, torch.full((3,), size * (size - 1) / 2))
    for index, (work, x) in enumerate(zip(works, tensors, strict=True)):
        assert work.wait()
        same(x, torch.full((1000,), size * (size - 1) / 2 + index * size))
    x = torch.ones(5)
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((5,), 2.0 * size))
    for _ in range(20):  # a callback may wait for a call of its own
        future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
        again = future.then(lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait())
        same(again.wait()[0], torch.full((5,), float(size * size)))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    same(work.get_future().value()[0], torch.full((2,), float(size)))
    out, x = torch.empty(size * 3), torch.full((3,), float(rank))
    dist.all_gather_into_tensor(out, x, async_op=True).wait(timedelta(seconds=50))
    same(out, torch.arange(size).repeat_interleave(3).float())
    out[3 * rank : 3 * rank + 3] = rank + 1.0  # in place, as FSDP2 gathers
    dist.all_gather_into_tensor(out, out[3 * rank : 3 * rank + 3])
    same(out, torch.arange(1, size + 1).repeat_interleave(3).float())
    x = torch.ones(3)
    version = x._version
    dist.all_reduce(x)
    assert x._version > version, "autograd would not see that the values have changed"


def coalesced(rank, size):
    xs = [torch.full((index,), float(rank)) for index in range(5)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    for index, x in enumerate(xs):
        same(x, torch.full((index,), size * (size - 1) / 2))
    outs = [torch.empty(size * index) for index in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for index, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((index,), float(rank)))
    manager.wait()
    for index, out in enumerate(outs):
        same(out, torch.arange(size).repeat_interleave(index).float())
    outs = [torch.empty(index) for index in range(4)]
    with dist._coalescing_manager():
        for index, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, torch.arange(size).repeat_interleave(index).float())
    for index, out in enumerate(outs):
        same(out, torch.full((index,), float(rank * size)))
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), rank + 0.5)])
    for other, (two, three) in enumerate(lists):
        same(two, torch.full((2,), float(other)))
        same(three, torch.full((3,), other + 0.5))


def objects(rank, size):
    listed = [None] * size
    dist.all_gather_object(listed, {"rank": rank, "text": "x" * rank})
    assert listed == [{"rank": other, "text": "x" * other} for other in range(size)]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * 7, gathered, dst=0)
    assert gathered == ([7 * other for other in range(size)] if rank == 0 else None)
    shared = [f"of {rank}", rank]
    dist.broadcast_object_list(shared, src=size - 1)
    assert shared == [f"of {size - 1}", size - 1]
    mine = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, src=0)
    assert mine == [rank]


def sparse(rank, size):
    for dtype in (torch.float32, torch.int64):
        indices = torch.tensor([[rank, 5], [0, 1]])
        x = torch.sparse_coo_tensor(indices, torch.tensor([1, 2 + rank], dtype=dtype), (size + 6, 2))
        dist.all_reduce(x)
        expected = torch.zeros(size + 6, 2, dtype=dtype)
        for other in range(size):
            expected[other, 0] += 1
            expected[5, 1] += 2 + other
        same(x.to_dense(), expected)


def rejected(rank, size):
    """Errors before anything was sent: all ranks make them alike, and the group works on."""
    fails(ValueError, "one for each rank", lambda: dist.reduce_scatter(torch.ones(1), [torch.ones(1)] * 9))
    fails(ValueError, "one for each rank", lambda: dist.all_gather([torch.ones(1)] * 9, torch.ones(1)))
    fails(ValueError, "complex", lambda: dist.group.WORLD.allreduce([torch.ones(1) + 0j], _options()).wait())
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), float(size)))


def _options():
    options = dist.AllreduceOptions()
    options.reduceOp = ReduceOp.PRODUCT
    return options


if __name__ == "__main__":
    main()

"""PyTorch's process groups over the backend `unisono` on CUDA tensors, by ranks that share a device.

Start it with ``unisono run -n 2 -- process_group.py``. Arguments select parts by name; without any, all parts
run. Every part creates a process group of its own: after a failure, whose traceback is printed, the next part
runs. DEVICE=cpu runs the parts that need no device, to test this program.
"""

import contextlib
import os
import sys
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frameworks/programs"))

import backend_collectives as collectives
import backend_groups as groups
import backend_models as models
from backend_common import fails, monitored_barrier
from torch_names import MixedPrecisionPolicy, fully_shard
from unisono.torch.distributed.versions import IS_GROUP

DEVICE = os.environ.get("DEVICE", "cuda")
RANK, SIZE = int(os.environ["UNISONO_RANK"]), int(os.environ["UNISONO_SIZE"])
SECONDS = timedelta(seconds=30)
LONG = 200_000_000  # cycles: about a tenth of a second
COUNT = 100_000
TOTAL = SIZE * (SIZE + 1) / 2
CUDA = torch.device("cuda", 0)


def late(value, count=COUNT):
    """A tensor whose value is written after a long kernel on the current stream."""
    x = torch.zeros(count, device="cuda")
    torch.cuda._sleep(LONG)
    return x.fill_(value)


def everywhere(x, value, what):
    """All elements have a value, for a kernel that is queued on the current stream."""
    seen = x + 0
    assert bool((seen == value).all()), f"{what}: expected {value}, received {seen.flatten()[:5].tolist()}"


def path(rank, size):
    """The memory takes the path that UNISONO_CUDA_PATH names."""
    dist.all_reduce(torch.ones(3))
    found, wanted = (
        dist.group.WORLD._get_backend(CUDA).group.cuda_path(0),
        os.environ.get("UNISONO_CUDA_PATH"),
    )
    if rank == 0:
        print(f"by {found}", flush=True)
    assert size == 1 or wanted in (None, found), (found, wanted)


def blocking(rank, size):
    """Blocking calls see the work queued before them, and are seen by the work queued after them."""
    for name, stream in (("default stream", torch.cuda.default_stream()), ("side", torch.cuda.Stream())):
        with torch.cuda.stream(stream):
            x = late(rank + 1.0)
            dist.all_reduce(x)
            everywhere(x, TOTAL, f"all_reduce, {name}")
            x = late(rank + 1.0).to(torch.int16)  # reduced as another type
            dist.all_reduce(x)
            everywhere(x, int(TOTAL), f"all_reduce of int16, {name}")
            x = late(rank + 1.0)[::2]  # through a copy
            dist.broadcast(x, size - 1)
            everywhere(x, size, f"broadcast of a view, {name}")
            out = torch.zeros(size, COUNT)
            dist.all_gather_into_tensor(out, late(rank + 1.0))
            everywhere(out[size - 1], size, f"all_gather_into_tensor, {name}")
            outs = [torch.zeros(COUNT) for _ in range(size)]
            dist.all_gather(outs, late(rank + 1.0))
            everywhere(outs[size - 1], size, f"all_gather, {name}")
            out = torch.zeros(COUNT)
            dist.reduce_scatter_tensor(out, late(rank + 1.0, size * COUNT))
            everywhere(out, TOTAL, f"reduce_scatter_tensor, {name}")
            # Work that was queued before the call still sees the old values.
            x = torch.full((COUNT,), rank + 1.0)
            torch.cuda._sleep(LONG)
            old = x.clone()
            dist.all_reduce(x)
            everywhere(old, rank + 1.0, f"a copy made before all_reduce, {name}")
            right, left = (rank + 1) % size, (rank - 1) % size
            if size > 1:
                sent, x = dist.isend(late(rank + 1.0), right), torch.zeros(COUNT)
                dist.recv(x, left)
                everywhere(x, left + 1.0, f"recv, {name}")
                sent.wait()


def background(rank, size):
    """Calls with async_op, waited for on the stream of the call and on another one."""
    other = torch.cuda.Stream()
    for name, stream in (("default stream", torch.cuda.default_stream()), ("side", torch.cuda.Stream())):
        for dtype in (torch.float32, torch.int16, torch.bfloat16, torch.complex64):
            for waiting in (stream, other):
                with torch.cuda.stream(stream):
                    x = late(rank + 1.0).to(dtype)
                    work = dist.all_reduce(x, async_op=True)
                with torch.cuda.stream(waiting):
                    work.wait()
                    everywhere(x, int(TOTAL), f"all_reduce of {dtype}, {name}, same: {waiting is stream}")
                    torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(stream):
            xs = [late(rank + index) for index in range(4)]
            works = [dist.all_reduce(x, async_op=True) for x in xs]
            last = torch.full((COUNT,), rank + 1.0)
            dist.all_reduce(last)  # blocking, behind the others
            everywhere(last, TOTAL, f"all_reduce behind four others, {name}")
            for index, (work, x) in enumerate(zip(works, xs, strict=True)):
                work.wait()
                everywhere(x, TOTAL - size + index * size, f"all_reduce {index} of four, {name}")
            out, x = torch.zeros(size, COUNT), late(rank + 1.0)
            dist.all_gather_into_tensor(out, x, async_op=True).wait()
            everywhere(out[size - 1], size, f"all_gather_into_tensor in the background, {name}")


def futures(rank, size):
    """Futures and their continuations are ordered with the current stream, on the right device."""
    for name, stream in (("default stream", torch.cuda.default_stream()), ("side", torch.cuda.Stream())):
        with torch.cuda.stream(stream):
            future = dist.all_reduce(late(rank + 1.0), async_op=True).get_future()
            everywhere(future.wait()[0], TOTAL, f"a future's value, {name}")
            x = late(rank + 1.0)
            work = dist.all_reduce(x, async_op=True)

            def slowly(done):
                torch.cuda._sleep(LONG)
                return done.value()[0] * 2

            doubled = work.get_future().then(slowly).then(lambda done: done.value() + 1)
            everywhere(doubled.wait(), 2 * TOTAL + 1, f"a continuation, {name}")
            work = dist.all_reduce(late(rank + 1.0), async_op=True)
            work.wait()
            everywhere(work.get_future().value()[0], TOTAL, f"a future after its end, {name}")
            if size > 1:
                right, left = (rank + 1) % size, (rank - 1) % size
                sent = dist.isend(late(rank + 1.0), right)
                future = dist.irecv(torch.zeros(2 * COUNT)[::2], left).get_future()
                everywhere(future.wait()[0], left + 1.0, f"the future of a receive, {name}")
                sent.wait()


def unhindered(rank, size):
    """A call in the background does not wait for work that its stream gets after the call."""
    with torch.cuda.stream(torch.cuda.Stream()):
        x, y = torch.full((COUNT,), rank + 1.0), torch.zeros(COUNT)
        for _ in range(2):  # kernels are loaded at their first launch, which waits for all running kernels
            dist.all_reduce(torch.ones(COUNT), async_op=True).wait()
            y.add_(1)
            torch.cuda._sleep(1000)
            torch.cuda.current_stream().synchronize()
        dist.barrier()
        work = dist.all_reduce(x, async_op=True)
        torch.cuda._sleep(20 * LONG)
        y.add_(1)
        work.wait()
        assert not torch.cuda.current_stream().query(), "the call waited for a later kernel"
        torch.cuda.synchronize()
        everywhere(x, TOTAL, "all_reduce before a long kernel")


def lifetimes(rank, size):
    """The memory of tensors that the caller drops is not reused before the call has ended."""
    for _ in range(3):
        futures_ = []
        for _ in range(4):
            futures_.append(dist.all_reduce(late(rank + 1.0), async_op=True).get_future())
            torch.full((COUNT,), -1.0)  # takes memory that was freed too early
        for future in futures_:
            everywhere(future.wait()[0], TOTAL, "the value of a dropped tensor")
    x = torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), torch.tensor([1.0, 2.0]), (size + 6,))
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    torch.cuda._sleep(LONG)
    dense = x.to_dense()
    del x
    for _ in range(8):
        dist.all_reduce(torch.ones(2), async_op=True).wait()
    assert dense[5] == 2 * size + (1 if size > 5 else 0), dense


def functional(rank, size):
    """Functional collectives, as compiled programs use them."""
    import torch.distributed._functional_collectives as funcol

    everywhere(funcol.all_reduce(late(rank + 1.0), "sum", dist.group.WORLD), TOTAL, "all_reduce")
    gathered = funcol.all_gather_tensor(late(rank + 1.0), 0, dist.group.WORLD)
    everywhere(gathered[-COUNT:], size, "all_gather_tensor")


def rejected_devices(rank, size):
    """Tensors of one call on several devices are rejected, on one rank and between ranks."""
    here, there = torch.ones(2), torch.ones(2, device="cpu")
    kinds = (ValueError, RuntimeError)
    fails(kinds, "device", lambda: dist.all_gather_into_tensor(torch.ones(2 * size, device="cpu"), here))
    fails(kinds, "device", lambda: dist.all_gather([there.clone() for _ in range(size)], here))
    if size > 1:
        fails(RuntimeError, "CUDA", lambda: dist.all_reduce(here if rank == 0 else there))
    if rank == 0:
        fails(ValueError, "without a source", lambda: dist.recv(torch.ones(2)))
    x = torch.ones(3)
    dist.all_reduce(x)
    everywhere(x, size, "all_reduce after errors")


def graphs(rank, size):
    """A call in a CUDA graph is rejected, and the group works on."""
    x = torch.ones(3)
    for options in ({}, {"async_op": True}):
        with fails_inside("CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(x, **options)
    dist.all_reduce(x)
    everywhere(x, size, "all_reduce after a graph")


@contextlib.contextmanager
def fails_inside(text):
    """The block raises an error whose message contains the text."""
    try:
        yield
    except RuntimeError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{text}: no error")


def barriers(rank, size):
    """A barrier that names a device waits for its current stream."""
    dist.barrier()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(LONG)
        dist.barrier(device_ids=[0])
        assert torch.cuda.current_stream().query(), "the barrier did not wait for the stream"
        torch.cuda._sleep(LONG)
        dist.barrier(device_ids=[0], async_op=True).wait()
        assert torch.cuda.current_stream().query(), "the barrier in the background did not wait"
    monitored_barrier()


def half(rank, size):
    """A fully sharded step in bfloat16, whose parameters are gathered and reduced as such."""
    types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32, "output_dtype": torch.float32}
    policy = MixedPrecisionPolicy(**types)
    network = models.model()
    for layer in network:
        fully_shard(layer, mp_policy=policy)
    fully_shard(network, mp_policy=policy)
    models.train(network, lambda x: x.chunk(size)[rank])
    for name, value in models.expected().items():
        made = network.state_dict()[name].full_tensor()
        torch.testing.assert_close(made, value, rtol=0.1, atol=0.05)


def mixture(rank, size):
    """CPU and CUDA tensors over one group, and over a subgroup."""
    # A group of older versions does not look at the devices of tensors.
    devices = ["cpu", "cuda"] if IS_GROUP else [device.type for device in dist.group.WORLD._device_types]
    for group in (dist.group.WORLD, dist.new_group(list(range(size)))):
        for device in ("cpu", "cuda"):
            x = torch.full((5,), rank + 1.0, device=device)
            if device in devices:
                dist.all_reduce(x, group=group)
                assert x.tolist() == [TOTAL] * 5 and x.device.type == device, x
            else:
                fails(RuntimeError, device, lambda x=x, group=group: dist.all_reduce(x, group=group))
        dist.barrier(group)
        listed = [None] * size
        dist.all_gather_object(listed, ("of", rank), group=group)
        assert listed == [("of", other) for other in range(size)], listed


def bound(rank, size):
    """A group that is bound to a device, its subgroups and its barrier."""
    assert dist.group.WORLD.bound_device_id == CUDA
    for members in ([0], list(range(size))):
        group = dist.new_group(members)
        if rank in members:
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            everywhere(x, len(members), f"all_reduce of ranks {members}")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(LONG)
        dist.barrier()
        assert torch.cuda.current_stream().query(), "the barrier did not wait for the stream"


def beside_nccl(rank, size):
    """cpu:unisono,cuda:nccl: each backend serves its own device."""
    x = torch.full((5,), rank + 1.0, device="cpu")
    dist.all_reduce(x)
    assert x.tolist() == [TOTAL] * 5, x
    assert "unisono" in str(dist.get_backend_config()), dist.get_backend_config()
    x = torch.full((5,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    everywhere(x, TOTAL, "all_reduce by NCCL")


PARTS = {
    part.__name__: (part, "unisono", {})
    for part in (
        *(path, collectives.means, collectives.views, collectives.asynchronous, collectives.coalesced),
        *(collectives.objects, collectives.sparse, collectives.rejected, collectives.moves),
        *(collectives.exchanges, collectives.reductions, groups.messages, groups.groups, groups.splits),
        *(groups.monitored, groups.timeouts, groups.aborted),
        *(models.replicated, models.sharded, models.joined, models.checkpoints, half),
        *(blocking, background, futures, unhindered, lifetimes, functional),
        *(rejected_devices, graphs, barriers, mixture),
    )
}
PARTS["mixture_named"] = (mixture, "cpu:unisono,cuda:unisono", {})
PARTS["mixture_gloo"] = (mixture, "cpu:gloo,cuda:unisono", {})
PARTS["mixture_cuda"] = (mixture, "cuda:unisono", {})
PARTS["bound"] = (bound, "unisono", {"device_id": CUDA})
PARTS["beside_nccl"] = (beside_nccl, "cpu:unisono,cuda:nccl", {})
ANYWHERE = [name for name, (part, *_) in PARTS.items() if part.__module__ != __name__]


def file_of_job(name):
    """The path of a file or folder that the ranks of this job share."""
    return Path(tempfile.gettempdir()) / f"process-group-{os.environ['UNISONO_JOB'].replace('/', '-')}-{name}"


def run(name):
    """Runs one part in a process group of its own; returns whether it passed."""
    part, backend, options = PARTS[name]
    path = file_of_job(name)
    began = time.monotonic()
    store = dist.FileStore(str(path), SIZE)
    try:
        arguments = {"store": store, "rank": RANK, "world_size": SIZE, "timeout": SECONDS}
        if IS_GROUP and name in ("mixture_gloo", "beside_nccl"):
            create = partial(dist.init_process_group, backend, **arguments, **options)
            fails(RuntimeError, "cannot combine it with others", create)
            return True
        dist.init_process_group(backend, **arguments, **options)
        part(RANK, SIZE)
        dist.barrier()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        passed = True
    except Exception:
        print(f"rank {RANK}: {name}: FAILED\n{traceback.format_exc()}", flush=True)
        passed = False
        abort()
    if dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
    if passed and RANK == 0:
        summary = (part.__doc__ or name).splitlines()[0]
        print(f"passed  {name} ({time.monotonic() - began:.1f} s)  {summary}", flush=True)
    return passed


def abort():
    """Ends the calls of the other ranks, so that they need not wait for their timeouts."""
    with contextlib.suppress(Exception):
        from unisono.torch.distributed.backend import ALIVE

        for backend in list(ALIVE):
            backend.abort()


def main():
    """Runs the parts."""
    names = sys.argv[1:] or list(PARTS if DEVICE == "cuda" else ANYWHERE)
    torch.set_num_threads(1)
    folder = file_of_job("folder")
    folder.mkdir(exist_ok=True)
    os.environ.setdefault("CHECKPOINTS", str(folder))
    warnings.simplefilter("ignore")
    os.environ["NCCL_HOSTID"] = f"rank-{RANK}"  # so that NCCL accepts ranks that share a device
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    torch.set_default_device(DEVICE)
    failed = [name for name in names if not run(name)]
    if RANK == 0:
        print(f"process groups on {SIZE} ranks: {len(names) - len(failed)} parts passed, failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

"""A loop for Accelerate over the backend `unisono`: trains as one process does."""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

BACKEND = sys.argv[1]
STEPS, BATCH = 6, 4

if BACKEND != "none":
    dist.init_process_group(BACKEND)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)


def build():
    torch.manual_seed(1)
    if len(sys.argv) > 2:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=50,
            n_positions=16,
            n_embd=32,
            n_layer=2,
            n_head=2,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
        return GPT2LMHeadModel(config)
    return torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50))


def loss_of(model, x):
    if len(sys.argv) > 2:
        return model(input_ids=x, labels=x).loss
    return torch.nn.functional.cross_entropy(model(x).transpose(1, 2), x)


def data(size):
    x = torch.randint(0, 50, (STEPS * BATCH * size, 16), generator=torch.Generator().manual_seed(2))
    return TensorDataset(x)


def alone(size):
    """The same in one process: batches of all ranks, every two of them in one step."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, (x,) in enumerate(DataLoader(data(size), batch_size=BATCH * size)):
        (loss_of(model, x) / 2).backward()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model


size = accelerator.num_processes
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
model, optimizer, loader, scheduler = accelerator.prepare(
    model, optimizer, DataLoader(data(size), batch_size=BATCH), scheduler
)
seen = []
for (x,) in loader:
    with accelerator.accumulate(model):
        loss = loss_of(model, x)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    seen.append(accelerator.gather_for_metrics(x[:, 0]))
wanted = alone(size).state_dict()
for name, value in accelerator.unwrap_model(model).state_dict().items():
    torch.testing.assert_close(value, wanted[name], rtol=1e-3, atol=1e-4)
assert len(torch.cat(seen)) == STEPS * BATCH * size
assert accelerator.reduce(torch.tensor([1.0]), "mean").item() == 1.0
assert accelerator.gather_for_metrics([accelerator.process_index], use_gather_object=True) == list(
    range(size)
)
assert accelerator.pad_across_processes(torch.ones(accelerator.process_index + 1)).shape == (size,)
accelerator.wait_for_everyone()
with accelerator.main_process_first():
    pass
if BACKEND != "none":
    assert dist.get_backend() == BACKEND
accelerator.print("trained", size)
accelerator.end_training()

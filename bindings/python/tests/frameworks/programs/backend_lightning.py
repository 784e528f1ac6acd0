"""A Lightning module over the backend `unisono`: trains as one process does."""

import os
import sys
import tempfile
import warnings

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
BACKEND, SIZE = os.environ.get("BACKEND", "unisono"), int(sys.argv[1])


class Module(lightning.LightningModule):
    """Regression."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.network = torch.nn.Sequential(torch.nn.Linear(6, 33), torch.nn.Tanh(), torch.nn.Linear(33, 2))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("error", torch.nn.functional.l1_loss(self.network(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data():
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(torch.randn(48, 6, generator=generator), torch.randn(48, 2, generator=generator))


def train(batch, folder, **options):
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    loader = DataLoader(data(), batch_size=batch, shuffle=False)
    trainer.fit(module, loader, loader)
    return module.network.state_dict(), trainer


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    strategy = DDPStrategy(process_group_backend=BACKEND)
    made, trainer = train(12 // SIZE, folder, devices=SIZE, strategy=strategy)
    assert dist.get_backend() == BACKEND and trainer.world_size == SIZE
    # Ranks take every SIZE-th sample, so that a batch of one process has the same samples.
    wanted, alone = train(12, folder, devices=1, strategy="auto", barebones=False)
    for name, value in made.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-5)
    error = trainer.callback_metrics["error"]
    torch.testing.assert_close(error, alone.callback_metrics["error"], rtol=1e-4, atol=1e-5)
    if trainer.global_rank == 0:
        assert os.listdir(folder), "no checkpoint"
        print("trained", SIZE)

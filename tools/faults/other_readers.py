"""Other readers on the damaged files of the fault tests: what they refuse, accept, or die of.

    python other_readers.py WHAT FOLDER [BEHIND]        prints one JSON line: {"case": ..., "fate": "refused" | "accepted", "pixels": checksum} per file

WHAT is safetensors, torch, pillow or lightning. One process reads all files of FOLDER in the order of their names, beginning
behind the name BEHIND; a crash, or a file that takes longer than 20 s, ends it. For lightning FOLDER is where checkpoints go.
"""
import hashlib
import json
import os
import pathlib
import signal
import sys
import warnings
import zlib

warnings.filterwarnings("ignore")


def safetensors_reader():
    from safetensors.torch import load_file

    def read(path):
        load_file(path)
        return 0

    return read


def torch_reader():
    import torch

    def read(path):
        torch.load(path, weights_only=True, map_location="cpu")
        return 0

    return read


def pillow_reader():
    from PIL import Image

    def read(path):
        with Image.open(path) as image:
            return zlib.crc32(image.convert("RGB").tobytes())

    return read


def read_all(read, folder, behind):
    print(json.dumps({"started": True}), flush=True)
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.name <= behind:
            continue
        signal.alarm(20)
        pixels = 0
        try:
            pixels, fate = read(path), "accepted"
        except BaseException as error:  # whatever a reader raises, a panic of its Rust part included
            fate = "panicked" if type(error).__name__ == "PanicException" else "refused"
        signal.alarm(0)
        print(json.dumps({"case": path.name, "fate": fate, "pixels": pixels}), flush=True)


def lightning_run(folder):
    """A prompt of 4 x 32 numbers learned on fixed features, shuffled batches and dropout; goes on from last.ckpt if it is there.
    Prints a digest of the result."""
    import lightning
    import torch

    class Prompt(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.context = torch.nn.Parameter(torch.zeros(4, 32))
            self.drop = torch.nn.Dropout(0.2)

        def training_step(self, batch, _):
            x, y = batch
            return torch.nn.functional.cross_entropy(self.drop(x) @ self.context.t(), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    import logging

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(1, verbose=False)
    draw = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(256, 32, generator=draw), torch.randint(0, 4, (256,), generator=draw))
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    keep = lightning.pytorch.callbacks.ModelCheckpoint(folder, save_last=True, every_n_train_steps=10, save_top_k=1)
    trainer = lightning.Trainer(max_epochs=25, callbacks=[keep], logger=False, enable_progress_bar=False, accelerator="cpu",
                                enable_model_summary=False)
    last = os.path.join(folder, "last.ckpt")
    model = Prompt()
    print(json.dumps({"started": os.path.exists(last)}), flush=True)
    trainer.fit(model, loader, ckpt_path=last if os.path.exists(last) else None)
    print(json.dumps({"digest": hashlib.sha256(model.context.detach().numpy().tobytes()).hexdigest()}), flush=True)


if __name__ == "__main__":
    what, folder, *behind = sys.argv[1:]
    if what == "lightning":
        lightning_run(folder)
    else:
        readers = {"safetensors": safetensors_reader, "torch": torch_reader, "pillow": pillow_reader}
        read_all(readers[what](), folder, behind[0] if behind else "")

"""State dicts that both Python and C++ can create, and files with them."""

import argparse
import importlib.util
import os
import pathlib

import torch

TYPES = (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float8_e4m3fn "
    "float8_e5m2 float16 bfloat16 float32 float64 complex64 complex128"
).split()


def types() -> dict:
    """A tensor of each type, [2, 3], and some of unusual shape."""
    state = {}
    for name in TYPES:
        count = torch.arange(6).reshape(2, 3)
        if name == "bool":
            state[name] = count % 2 == 1
        elif name.startswith("complex"):
            part = torch.float32 if name == "complex64" else torch.float64
            state[name] = torch.complex(count.to(part), -count.to(part))
        else:
            state[name] = count.to(getattr(torch, name))
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.empty(0, 3)
    state['quote " tab \t é 漢 😀'] = torch.tensor([7], dtype=torch.int64)
    return state


def layout() -> dict:
    """Views: shared memory and strides."""
    base = torch.arange(24.0).reshape(4, 6)
    return {
        "base": base,
        "same": base,
        "transposed": base.t(),
        "part": base[1:3, 2:5],
        "every_second": base.flatten()[::2],
        "expanded": base[0, :1].expand(5),
        "channels_last": torch.arange(24.0)
        .reshape(1, 2, 3, 4)
        .to(memory_format=torch.channels_last),
    }


class Net(torch.nn.Module):
    """Tensors of its own and submodules; WeightNet in weight_net.h."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        )
        self.head = torch.nn.Linear(16, 2)
        self.register_buffer("mean", torch.zeros(1))
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.body(x * self.scale - self.mean).flatten(1))


class Canary:
    """Runs code when its pickle is loaded with full trust."""

    def __reduce__(self):
        return os.system, ("touch canary",)


def write(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    legacy = dict(_use_new_zipfile_serialization=False)
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    checkpoint = {
        "epoch": 3,
        "arch": "net",
        "best": torch.tensor(91.5),
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    wrapped = {"module." + k: v for k, v in model.state_dict().items()}

    torch.save(types(), out / "types.pth")
    torch.save(layout(), out / "layout.pth")
    torch.save(layout(), out / "layout_legacy.pth", **legacy)
    old = {k: v for k, v in types().items() if not has_no_storage_class(v)}
    torch.save(old, out / "types_legacy.pth", **legacy)
    for protocol in 3, 4, 5:
        path = out / f"protocol{protocol}.pth"
        torch.save(types(), path, pickle_protocol=protocol)
    torch.save(model.state_dict(), out / "net.pth")
    torch.save(dict(model.named_parameters()), out / "parameters.pth")
    torch.save(checkpoint, out / "checkpoint.pth")
    torch.save(checkpoint, out / "checkpoint_legacy.pth", **legacy)
    torch.save({"ema": {"model": wrapped}, "epoch": 1}, out / "wrapped.pth")
    torch.save({"model": types(), "ema": layout()}, out / "two.pth")
    deep = {"a": {"b": {"c": types()}}, "ema": layout()}
    torch.save(deep, out / "deep.pth")
    nets = {"nets": [types()], "ema": layout(), "opt": [optimizer.state_dict()]}
    torch.save(nets, out / "nets.pth")
    z = torch.complex(torch.arange(4.0), torch.ones(4))
    lazy = {"z": z, "conj": z.conj(), "neg": torch._neg_view(torch.ones(4))}
    torch.save(lazy, out / "lazy.pth")
    torch.save(lazy, out / "lazy_legacy.pth", **legacy)
    torch.save(torch.ones(2), out / "tensor.pth")
    torch.save({"a": torch.ones(2), "b": Canary()}, out / "canary.pth")
    torch.save([Canary()], out / "canary_legacy.pth", **legacy)
    args = argparse.Namespace(lr=0.1)
    torch.save({"args": args, "model": types()}, out / "namespace.pth")
    torch.jit.script(torch.nn.Linear(2, 2)).save(out / "script.pt")
    if importlib.util.find_spec("fastai"):
        write_fastai(out)
    if importlib.util.find_spec("safetensors"):
        from safetensors.torch import save_file

        # The format does not support complex128.
        known = {k: v for k, v in types().items() if k != "complex128"}
        save_file(known, out / "types.safetensors", {"format": "pt"})


def write_fastai(out: pathlib.Path) -> None:
    """A file of Learner.save: the model, and an optimizer state with NumPy numbers."""
    from fastai.callback import progress, schedule  # noqa: F401: methods of Learner
    from fastai.basics import DataLoaders, Learner, MSELossFlat

    rows = [(torch.ones(3, 4, 4), torch.ones(2))] * 4
    torch.manual_seed(1)
    learn = Learner(
        DataLoaders.from_dsets(rows, rows, bs=2), Net(), loss_func=MSELossFlat()
    )
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(1)
    learn.save((out / "fastai").absolute())


def has_no_storage_class(tensor: torch.Tensor) -> bool:
    names = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")
    return str(tensor.dtype).removeprefix("torch.") in names

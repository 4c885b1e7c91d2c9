"""Writes lora_fixture.json: outputs, gradients and merged weights of PEFT's LoRA.

python lora_fixture.py > lora_fixture.json, with peft installed; written by 0.21.2.

PEFT adds the product of an attention's out_proj twice (its pull request 3774,
open as of 0.21.2). So PEFT gets half of B there, and the fixture omits these
gradients.
"""
import json
import sys

import peft
import torch
from torch import nn

RANK = 2
ALPHA = 6


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3)

    def forward(self, x):
        return self.attention(x, x, x)[0]


CASES = {
    "linear": (nn.Sequential(nn.Linear(6, 5)), (4, 6)),
    "conv": (nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1)), (2, 3, 7, 6)),
    "pointwise": (nn.Sequential(nn.Conv2d(6, 4, 1)), (2, 6, 3, 3)),
    "attention": (Attentive(), (5, 2, 12)),
}


def rounded(tensor):
    """Rounds in place too, so that Tern starts from the same numbers."""
    tensor.data = torch.round(tensor.data * 1000) / 1000
    return flat(tensor)


def flat(tensor):
    return {"shape": list(tensor.shape), "values": tensor.detach().flatten().tolist()}


def plain_name(name):
    for part in "base_model.model.", "base_layer.", "default.":
        name = name.replace(part, "")
    return name


def case(module, shape):
    module = module.double()
    base = {name: rounded(p) for name, p in module.named_parameters()}
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    target = next(iter(base)).rpartition(".")[0]
    model = peft.get_peft_model(
        module, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=[target]))
    learning = {n: p for n, p in model.named_parameters() if p.requires_grad}
    adapters = {}
    for name, p in learning.items():
        nn.init.normal_(p, 0, 0.3)
        adapters[plain_name(name)] = rounded(p)
        if "out_proj.lora_B" in name:
            p.data /= 2
    x = torch.randn(shape, dtype=torch.double)
    result = {"target": target, "weights": base, "adapters": adapters, "input": rounded(x)}
    output = model(x)
    output.square().sum().backward()
    result["output"] = flat(output)
    result["gradients"] = {
        plain_name(n): flat(p.grad) for n, p in learning.items() if "out_proj" not in n}
    merged = model.merge_and_unload()
    result["merged"] = {
        name: flat(p) for name, p in merged.named_parameters() if not torch.equal(p, before[name])}
    return result


def main():
    torch.manual_seed(0)
    cases = {name: case(*spec) for name, spec in CASES.items()}
    grouped = peft.get_peft_model(
        nn.Sequential(nn.Conv2d(4, 6, 3, groups=2)),
        peft.LoraConfig(r=RANK, target_modules=["0"]))
    shapes = {plain_name(n): list(p.shape)
              for n, p in grouped.named_parameters() if p.requires_grad}
    json.dump({"peft": peft.__version__, "rank": RANK, "alpha": ALPHA,
               "cases": cases, "grouped": shapes}, sys.stdout)
    print()


if __name__ == "__main__":
    main()

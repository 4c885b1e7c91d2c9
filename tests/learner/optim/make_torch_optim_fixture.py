"""Writes torch_optim_fixture.h: results of Python's torch.optim.

    python make_torch_optim_fixture.py > torch_optim_fixture.h && clang-format -i torch_optim_fixture.h

Each case: w0 = linspace(-1, 1, 8), loss = mean((w - arange(8))**2), 10 steps.
The "amp" cases use torch.amp.GradScaler("cpu", init_scale=8,
growth_interval=3), with a NaN in the gradient of step 4 (counted from 0).
"""
import torch

CASES = [
    ("sgd", torch.optim.SGD, dict(lr=0.1)),
    ("sgd_momentum", torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
    ("sgd_dampening", torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("sgd_nesterov", torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("adam", torch.optim.Adam, dict(lr=0.01)),
    ("adam_l2", torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adam_amsgrad", torch.optim.Adam, dict(lr=0.01, amsgrad=True)),
    ("adamw", torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)),
    ("adamw_amsgrad", torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1, amsgrad=True)),
]


def train(kind, options, amp):
    w = torch.linspace(-1, 1, 8).requires_grad_()
    optimizer = kind([w], **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8, growth_interval=3, enabled=amp)
    for i in range(10):
        optimizer.zero_grad()
        scaler.scale(((w - torch.arange(8)) ** 2).mean()).backward()
        if amp and i == 4:
            w.grad[2] = float("nan")
        scaler.step(optimizer)
        scaler.update()
    return w.detach().tolist()


print("#pragma once\n")
print("// Written by make_torch_optim_fixture.py with torch " + torch.__version__ + ".\n")
print("#include <map>\n#include <string>\n#include <vector>\n")
print("namespace tern::test {\n")
print("inline const std::map<std::string, std::vector<double>> kTorchOptim = {")
for name, kind, options in CASES:
    for amp in (False, True):
        values = ", ".join(f"{v:.9g}" for v in train(kind, options, amp))
        print(f'    {{"{name}{"_amp" if amp else ""}", {{{values}}}}},')
print("};\n\n}  // namespace tern::test")

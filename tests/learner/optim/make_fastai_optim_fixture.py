"""Writes fastai_optim_fixture.h: results of fastai's optimizers.

    python make_fastai_optim_fixture.py > fastai_optim_fixture.h && clang-format -i fastai_optim_fixture.h

Each case: three parameters, linspace(-1, 1, 8), sin(arange(12)) as [3, 4] and
five zeros; targets arange(8), cos(arange(12)) and 0.3; gradients of the mean
squared errors; 300 steps.
"""
from functools import partial

import fastai
import torch
from fastai.optimizer import SGD, Adam, Lamb, Larc, Lookahead, RAdam, ranger


def lookahead(opt, k, alpha):
    return lambda params, **options: Lookahead(opt(params, **options), k=k, alpha=alpha)


CASES = [
    ("radam", RAdam, dict(lr=0.01)),
    ("radam_l2", RAdam, dict(lr=0.01, wd=0.1, decouple_wd=False)),
    ("ranger", ranger, dict(lr=0.01, wd=0.1)),
    ("lamb", Lamb, dict(lr=0.01)),
    ("lamb_decay", Lamb, dict(lr=0.01, wd=0.1)),
    ("larc", Larc, dict(lr=0.1)),
    ("larc_decay", Larc, dict(lr=0.1, wd=0.1)),
    ("lars", partial(Larc, clip=False), dict(lr=0.01)),
    ("lars_l2", partial(Larc, clip=False), dict(lr=0.1, mom=0.0, wd=0.1, decouple_wd=False)),
    ("lookahead_adam", lookahead(Adam, 6, 0.5), dict(lr=0.01, wd=0.1)),
    ("lookahead_sgd", lookahead(SGD, 5, 0.8), dict(lr=0.01, mom=0.9)),
]


def train(make, options):
    params = [torch.linspace(-1, 1, 8), torch.arange(12.0).sin().view(3, 4), torch.zeros(5)]
    targets = [torch.arange(8.0), torch.arange(12.0).cos().view(3, 4), torch.full((5,), 0.3)]
    params = [p.requires_grad_() for p in params]
    optimizer = make(params, **options)
    for _ in range(300):
        for p, t in zip(params, targets):
            p.grad = (p.detach() - t) * (2 / p.numel())
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in params]).tolist()


print("#pragma once\n")
print(f"// Written by make_fastai_optim_fixture.py with fastai {fastai.__version__}, torch {torch.__version__}.\n")
print("#include <map>\n#include <string>\n#include <vector>\n")
print("namespace tern::test {\n")
print("inline const std::map<std::string, std::vector<double>> kFastaiOptim = {")
for name, make, options in CASES:
    values = ", ".join(f"{v:.9g}" for v in train(make, options))
    print(f'    {{"{name}", {{{values}}}}},')
print("};\n\n}  // namespace tern::test")

"""Numbers that look random and are the same here and in tests/support/numbers.h."""
import math

import torch


def numbers(count):
    """Pseudo-random numbers in -1..1, the same as in C++."""
    bits = 0xFFFFFFFF
    h = torch.arange(1, count + 1, dtype=torch.int64) * 2654435761 & bits
    h = (h ^ (h >> 15)) * 1103515245 & bits
    h = (h ^ (h >> 13)) * 1540483477 & bits
    return (h ^ (h >> 16)).double() / 2**31 - 1


POOL = numbers(1000003)


def some(shape, index):
    """Tensor number `index` of these numbers."""
    count = math.prod(shape)
    begin = index * 7919 % len(POOL)
    repeats = (begin + count) // len(POOL) + 1
    return POOL.repeat(repeats)[begin : begin + count].reshape(shape)


def fill(model):
    with torch.no_grad():
        for index, (name, tensor) in enumerate(model.state_dict().items()):
            if not tensor.is_floating_point():
                continue
            values = some(tensor.shape, index)
            if tensor.dim() > 1:
                fan_in = tensor.numel() / tensor.shape[0]
                values = values * math.sqrt(6 / fan_in)
            elif name.endswith(("weight", "running_var")):
                values = 1 + 0.3 * values
            else:
                values = 0.3 * values
            tensor.copy_(values)

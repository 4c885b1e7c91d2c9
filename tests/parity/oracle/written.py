"""Optimizers that compute torch.optim's formulas with the roundings of other implementations.

Python's Adam updates its first moment with lerp, LibTorch's C++ Adam with mul and
add. Tern's kernel divides in a different order, uses no fused multiply-add, and
rounds square roots correctly. All are correct and differ in the last bit. Writing
their formulas in single tensor operations shows that there is no other difference:
the C++ optimizers equal these bit for bit.
"""

import torch


class Written(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
        super().__init__(params, {})
        self.lr, self.momentum = lr, momentum
        self.weight_decay, self.nesterov = weight_decay, nesterov
        self.beta1, self.beta2, self.eps = 0.9, 0.999, 1e-8

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.update(param, param.grad, self.state[param])

    def moments(self, param, state):
        if not state:
            state.update(t=0, m=torch.zeros_like(param), v=torch.zeros_like(param))
        state["t"] += 1
        return state["t"], state["m"], state["v"]


class TernSgd(Written):
    def update(self, param, grad, state):
        if self.weight_decay:
            grad = grad + param * self.weight_decay
        if "buffer" in state:
            state["buffer"].mul_(self.momentum).add_(grad)
        else:
            state["buffer"] = grad.clone()
        buffer = state["buffer"]
        move = grad + buffer * self.momentum if self.nesterov else buffer
        param.sub_(move * self.lr)


class TernAdam(Written):
    def update(self, param, grad, state):
        t, m, v = self.moments(param, state)
        param.mul_(1 - self.lr * self.weight_decay)
        m.mul_(self.beta1).add_(grad * (1 - self.beta1))
        v.mul_(self.beta2).add_(grad * (1 - self.beta2) * grad)
        step_size = self.lr / (1 - self.beta1**t)
        # Correctly rounded; float32 sqrt() (MKL) is not.
        root = v.double().sqrt().float() * (1 / (1 - self.beta2**t) ** 0.5)
        param.sub_(m / (root + self.eps) * step_size)


class LibtorchAdam(Written):
    def update(self, param, grad, state):
        t, m, v = self.moments(param, state)
        param.mul_(1 - self.lr * self.weight_decay)
        m.mul_(self.beta1).add_(grad, alpha=1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        denom = (v.sqrt() / (1 - self.beta2**t) ** 0.5).add_(self.eps)
        param.addcdiv_(m, denom, value=-self.lr / (1 - self.beta1**t))


OPTIMIZERS = {
    ("sgd", "tern"): TernSgd,
    ("sgd_l2", "tern"): TernSgd,
    ("adam", "tern"): TernAdam,
    ("adamw", "tern"): TernAdam,
    ("adam", "libtorch"): LibtorchAdam,
    ("adamw", "libtorch"): LibtorchAdam,
}

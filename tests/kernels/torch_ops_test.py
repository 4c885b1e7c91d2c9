"""Compares torch.ops.tern.* with PyTorch. Usage: torch_ops_test.py libtern_ops.so"""

import copy
import sys
import unittest

import torch


def adam_lists(seed=0, shapes=((7,), (64, 33), (8, 4, 3, 3))):
    torch.manual_seed(seed)
    params = [torch.randn(shape) for shape in shapes]
    return {
        "params": params,
        "grads": [torch.randn_like(p) for p in params],
        "steps": [torch.tensor(0.0) for _ in params],
        "exp_avgs": [torch.zeros_like(p) for p in params],
        "exp_avg_sqs": [torch.zeros_like(p) for p in params],
    }


class TorchOpsTest(unittest.TestCase):
    def test_normalize_images_equals_its_formula(self):
        images = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8)
        mean, stddev = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        expected = (images / 255 - torch.tensor(mean)) / torch.tensor(stddev)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            actual = torch.ops.tern.normalize_images(images, mean, stddev, dtype=dtype)
            self.assertTrue(actual.is_contiguous(memory_format=torch.channels_last))
            torch.testing.assert_close(actual, expected.permute(0, 3, 1, 2).to(dtype))

    def test_unscale_and_check_equals_amp(self):
        for value in (1.0, float("inf"), float("nan")):
            actual = [torch.randn(300), torch.full((3,), value)]
            expected = copy.deepcopy(actual)
            found, expected_found = torch.zeros(()), torch.zeros(())
            inv_scale = torch.tensor(0.3)
            torch.ops.tern.unscale_and_check_(actual, inv_scale, found)
            torch._amp_foreach_non_finite_check_and_unscale_(
                expected, expected_found, inv_scale
            )
            torch.testing.assert_close(actual, expected, equal_nan=True)
            self.assertEqual(found.item(), expected_found.item())

    def test_check_finite(self):
        found = torch.zeros(())
        torch.ops.tern.check_finite([torch.ones(3)], found)
        self.assertEqual(found.item(), 0)
        torch.ops.tern.check_finite([torch.tensor([1, float("nan")])], found)
        self.assertEqual(found.item(), 1)

    def test_ten_steps_equal_torch_optim_adamw(self):
        for amsgrad in (False, True):
            lists = adam_lists()
            max_exp_avg_sqs = [torch.zeros_like(p) for p in lists["params"]]
            theirs = [torch.nn.Parameter(p.clone()) for p in lists["params"]]
            optimizer = torch.optim.AdamW(
                theirs, lr=0.01, weight_decay=0.1, amsgrad=amsgrad, fused=True
            )
            for _ in range(10):
                grads = [torch.randn_like(p) for p in theirs]
                for param, grad in zip(theirs, grads):
                    param.grad = grad.clone()
                optimizer.step()
                torch.ops.tern.fused_adam_(
                    lists["params"],
                    grads,
                    [],
                    lists["steps"],
                    lists["exp_avgs"],
                    lists["exp_avg_sqs"],
                    max_exp_avg_sqs if amsgrad else [],
                    lr=0.01,
                    weight_decay=0.1,
                    amsgrad=amsgrad,
                    decoupled_weight_decay=True,
                )
            torch.testing.assert_close(lists["params"], [p.data for p in theirs])
            self.assertEqual([s.item() for s in lists["steps"]], [10] * 3)

    def test_ten_steps_equal_torch_optim_sgd(self):
        lists = adam_lists()
        theirs = [torch.nn.Parameter(p.clone()) for p in lists["params"]]
        options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}
        optimizer = torch.optim.SGD(theirs, **options)
        for _ in range(10):
            grads = [torch.randn_like(p) for p in theirs]
            for param, grad in zip(theirs, grads):
                param.grad = grad
            optimizer.step()
            torch.ops.tern.fused_sgd_(
                lists["params"], grads, [], lists["steps"], lists["exp_avgs"], **options
            )
        torch.testing.assert_close(lists["params"], [p.data for p in theirs])

    def test_masters_and_weights(self):
        lists = adam_lists()
        weights = [p.bfloat16() for p in lists["params"]]
        torch.ops.tern.fused_adam_(
            lists["params"],
            [g.bfloat16() * 1024 for g in lists["grads"]],
            weights,
            lists["steps"],
            lists["exp_avgs"],
            lists["exp_avg_sqs"],
            [],
            grad_scale=torch.tensor(1024.0),
            found_inf=torch.zeros(()),
        )
        for weight, param in zip(weights, lists["params"]):
            self.assertTrue(torch.equal(weight, param.bfloat16()))

    def test_skips_when_found_inf_is_two(self):
        lists = adam_lists()
        before = copy.deepcopy(lists)
        torch.ops.tern.fused_adam_(
            lists["params"],
            lists["grads"],
            [],
            lists["steps"],
            lists["exp_avgs"],
            lists["exp_avg_sqs"],
            [],
            found_inf=torch.tensor(2.0),
        )
        for name, tensors in lists.items():
            for actual, expected in zip(tensors, before[name]):
                self.assertTrue(torch.equal(actual, expected), name)

    def test_bad_arguments_raise_value_error(self):
        with self.assertRaisesRegex(ValueError, r"\[normalize_images\] images is"):
            torch.ops.tern.normalize_images(torch.ones(2), [0.5], [0.5])


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop())
    unittest.main()

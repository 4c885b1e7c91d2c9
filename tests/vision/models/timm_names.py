"""Writes what timm and torchvision call the weights of the same networks, with
their shapes, for pretrained_test.cpp.

python timm_names.py FILE

It needs torchvision and timm; without timm it knows of no network.
"""
import json
import sys

import torchvision

try:
    import timm
except ImportError:
    timm = None

NETWORKS = {
    "convnext_tiny": "convnext_tiny",
    "densenet121": "densenet121",
    "efficientnet_b0": "efficientnet_b0",
    "mobilenet_v2": "mobilenetv2_100",
    "mobilenet_v3_large": "mobilenetv3_large_100",
    "mobilenet_v3_small": "mobilenetv3_small_100",
    "regnet_y_400mf": "regnety_004",
    "resnext50_32x4d": "resnext50_32x4d",
    "swin_t": "swin_tiny_patch4_window7_224",
    "vit_b_32": "vit_base_patch32_224",
}


def shapes(model):
    """Without sides of length 1, which do not tell a layer from another."""
    return {
        name: [side for side in tensor.shape if side > 1]
        for name, tensor in model.state_dict().items()
    }


def main():
    networks = {}
    for ours, theirs in NETWORKS.items() if timm else ():
        networks[ours] = {
            "torchvision": shapes(torchvision.models.get_model(ours)),
            "timm": shapes(timm.create_model(theirs)),
        }
    with open(sys.argv[1], "w") as file:
        json.dump(networks, file)


main()

"""Writes the URLs of the weights of torchvision and timm, and the names and shapes of
the weights of networks that both have, for load_pretrained_test.cpp.

python published_names.py FILE

Needs torchvision; includes timm if it is installed.
"""
import json
import sys

import torch
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
    """Drops sides of length 1, which do not distinguish layers."""
    return {
        name: [side for side in tensor.shape if side > 1]
        for name, tensor in model.state_dict().items()
    }


def main():
    networks = {}
    for ours, theirs in NETWORKS.items() if timm else ():
        networks[ours] = {"torchvision": shapes(torchvision.models.get_model(ours))}
        with torch.device("meta"):  # no values; not all torchvision networks support it
            networks[ours]["timm"] = shapes(timm.create_model(theirs))
    models = torchvision.models
    urls = {
        name: models.get_model_weights(name).DEFAULT.url
        for name in models.list_models(module=models)
    }
    if timm:
        urls["vit_s_16"] = timm.get_pretrained_cfg("deit_small_patch16_224").url
    with open(sys.argv[1], "w") as file:
        json.dump({"networks": networks, "urls": urls}, file)


main()

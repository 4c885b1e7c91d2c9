"""Writes where torchvision and timm publish weights, and what they call those of
the same networks, with their shapes, for load_pretrained_test.cpp.

python published_names.py FILE

It needs torchvision; of timm's weights it knows where timm is installed.
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
    """Without sides of length 1, which do not tell a layer from another."""
    return {
        name: [side for side in tensor.shape if side > 1]
        for name, tensor in model.state_dict().items()
    }


def main():
    networks = {}
    for ours, theirs in NETWORKS.items() if timm else ():
        networks[ours] = {"torchvision": shapes(torchvision.models.get_model(ours))}
        with torch.device("meta"):  # without values; not all of torchvision's can
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

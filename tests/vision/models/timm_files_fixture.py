"""Writes timm_files_fixture.json: the names and shapes of weights in timm's files,
and the outputs of timm's networks with the weights of networks_fixture.py.

python timm_files_fixture.py > timm_files_fixture.json, with torchvision and timm.
The stored file is from timm 1.0.31.
"""
import json
import sys

import timm
import torch
from networks_fixture import fill, short, some

NETWORKS = {
    "efficientnet_b0": timm.create_model("efficientnet_b0", num_classes=10),
    # torchvision's eps; timm uses 1e-5 except in tf_mobilenetv3.
    "mobilenet_v3_small": timm.create_model(
        "mobilenetv3_small_100", num_classes=10, bn_eps=1e-3
    ),
    "regnety_002": timm.create_model("regnety_002", num_classes=10),
}


def record(model):
    model = model.double().eval()
    fill(model)
    with torch.no_grad():
        output = model(some((2, 3, 64, 48), 3)).flatten().tolist()
    weights = [[name, list(t.shape)] for name, t in model.state_dict().items()]
    return {"weights": weights, "output": output}


networks = {name: record(model) for name, model in NETWORKS.items()}
json.dump({"timm": timm.__version__, "networks": short(networks)}, sys.stdout, separators=(",", ":"))
print()

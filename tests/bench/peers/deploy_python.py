"""The job of tests/bench/deploy_timed.cpp with common deployment tools: the exported
file in ONNX Runtime or OpenCV, or torchvision's network."""
import argparse
import json

import numpy
from measure import median_seconds


def onnxruntime(net, images):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        f"{net}.onnx", providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: images})


def opencv(net, images):
    import cv2

    network = cv2.dnn.readNetFromONNX(f"{net}.onnx")

    def infer():
        network.setInput(images)
        return network.forward()

    return infer


def torchvision(net, images):
    import torch
    import torchvision

    torch.set_grad_enabled(False)
    layout = torch.channels_last
    model = torchvision.models.get_model(net, weights=None).eval()
    model = model.to(memory_format=layout)
    batch = torch.from_numpy(images)
    return lambda: model(batch.contiguous(memory_format=layout))


PEERS = {f.__name__: f for f in (onnxruntime, opencv, torchvision)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--net", required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    images = numpy.random.default_rng(1).random(
        (arguments.batch, 3, 224, 224), dtype=numpy.float32
    )
    infer = PEERS[arguments.peer](arguments.net, images)
    report = {"seconds": median_seconds(arguments.steps, infer)}
    with open(arguments.json, "w") as file:
        json.dump(report, file)


main()

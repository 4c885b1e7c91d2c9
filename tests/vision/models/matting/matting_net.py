"""The networks of background matting in plain PyTorch.

Written after Lin et al., "Real-Time High-Resolution Background Matting" (CVPR
2021), with the weight names of the paper's repository. Needs only torch. Patches are cropped
with two `unfold`s and an index, and replaced with an index, as in that repository.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


def resize(x, size):
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=False)


def conv(inputs, outputs, kernel, stride=1, dilation=1, groups=1):
    padding = dilation * (kernel // 2)
    return nn.Conv2d(
        inputs, outputs, kernel, stride, padding, dilation, groups, bias=False
    )


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride, dilation):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class ResNet(nn.Module):
    """A ResNet whose last layer is dilated instead of strided."""

    channels = [2048, 512, 256, 64]

    def __init__(self, inputs, blocks):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, 64, 7, 2), nn.BatchNorm2d(64)
        before = 64
        for number, count in enumerate(blocks):
            width, layer = 64 << number, nn.Sequential()
            for block in range(count):
                stride = 2 if block == 0 and number in (1, 2) else 1
                dilation = 2 if block > 0 and number == 3 else 1
                layer.append(Bottleneck(before, width, stride, dilation))
                before = 4 * width
            self.add_module(f"layer{number + 1}", layer)

    def forward(self, x):
        x1 = self.bn1(self.conv1(x)).relu()
        x2 = self.layer1(F.max_pool2d(x1, 3, 2, 1))
        x3 = self.layer2(x2)
        return self.layer4(self.layer3(x3)), x3, x2, x1, x


def norm_relu6(convolution):
    outputs = convolution.out_channels
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, dilation, expansion):
        super().__init__()
        wide = inputs * expansion
        self.conv = nn.Sequential()
        if expansion != 1:
            self.conv.append(norm_relu6(conv(inputs, wide, 1)))
        self.conv.append(
            norm_relu6(conv(wide, wide, 3, stride, dilation, groups=wide))
        )
        self.conv.append(conv(wide, outputs, 1))
        self.conv.append(nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """A MobileNetV2 without its last convolution; its last blocks are dilated."""

    channels = [320, 32, 24, 16]

    def __init__(self, inputs):
        super().__init__()
        self.features = nn.Sequential(norm_relu6(conv(inputs, 32, 3, 2)))
        before = 32
        for expansion, outputs, count, stride in [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 1),
            (6, 320, 1, 1),
        ]:
            for block in range(count):
                dilation = 2 if len(self.features) >= 15 else 1
                self.features.append(
                    InvertedResidual(
                        before,
                        outputs,
                        stride if block == 0 else 1,
                        dilation,
                        expansion,
                    )
                )
                before = outputs

    def forward(self, x):
        x1 = self.features[:2](x)
        x2 = self.features[2:4](x1)
        x3 = self.features[4:7](x2)
        return self.features[7:](x3), x3, x2, x1, x


class Pooling(nn.Sequential):
    def forward(self, x):
        return resize(super().forward(x), x.shape[2:])


class Aspp(nn.Module):
    def __init__(self, inputs, outputs=256):
        super().__init__()

        def after(convolution):
            norm = nn.BatchNorm2d(outputs)
            return [convolution, norm, nn.ReLU()]

        self.convs = nn.ModuleList(
            [nn.Sequential(*after(conv(inputs, outputs, 1)))]
        )
        for rate in 3, 6, 9:
            wide = conv(inputs, outputs, 3, dilation=rate)
            self.convs.append(nn.Sequential(*after(wide)))
        self.convs.append(
            Pooling(nn.AdaptiveAvgPool2d(1), *after(conv(inputs, outputs, 1)))
        )
        self.project = nn.Sequential(
            *after(conv(5 * outputs, outputs, 1)), nn.Dropout(0.5)
        )

    def forward(self, x):
        return self.project(torch.cat([conv(x) for conv in self.convs], 1))


class Decoder(nn.Module):
    def __init__(self, skips):
        super().__init__()
        channels = [256, 128, 64, 48, 37]
        for i in range(4):
            both = channels[i] + skips[i]
            last = nn.Conv2d(both, channels[i + 1], 3, padding=1, bias=i == 3)
            self.add_module(f"conv{i + 1}", last)
            if i < 3:
                self.add_module(f"bn{i + 1}", nn.BatchNorm2d(channels[i + 1]))

    def forward(self, x, *skips):
        for i, skip in enumerate(skips):
            x = torch.cat([resize(x, skip.shape[2:]), skip], 1)
            x = getattr(self, f"conv{i + 1}")(x)
            if i < 3:
                x = getattr(self, f"bn{i + 1}")(x).relu()
        return x


class MattingBase(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = (
            MobileNetV2(6)
            if backbone == "mobilenet_v2"
            else ResNet(6, [3, 4, 23 if backbone == "resnet101" else 6, 3])
        )
        channels = self.backbone.channels
        self.aspp = Aspp(channels[0])
        self.decoder = Decoder([*channels[1:], 6])

    def coarse(self, src, bgr):
        x, *skips = self.backbone(torch.cat([src, bgr], 1))
        x = self.decoder(self.aspp(x), *skips)
        return (
            x[:, :1].clamp(0, 1),
            x[:, 1:4],
            x[:, 4:5].clamp(0, 1),
            x[:, 5:].relu(),
        )

    def forward(self, src, bgr):
        pha, fgr, err, hid = self.coarse(src, bgr)
        return pha, (fgr + src).clamp(0, 1), err, hid


def pad(x, border):
    return F.pad(x, (border,) * 4)


def crop(x, places, side, border):
    x = pad(x, border).permute(0, 2, 3, 1)
    whole = side + 2 * border
    return x.unfold(1, whole, side).unfold(2, whole, side)[places]


def replace(x, patches, places):
    n, c, h, w = x.shape
    grid = x.view(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5)
    grid[places] = patches.to(grid.dtype)
    return grid.permute(0, 3, 1, 4, 2, 5).view(n, c, h, w)


class Refiner(nn.Module):
    def __init__(self, mode, sample_pixels, threshold, kernel):
        super().__init__()
        self.mode, self.kernel = mode, kernel
        self.sample_pixels, self.threshold = sample_pixels, threshold
        self.conv1 = nn.Conv2d(42, 24, kernel, bias=False)
        self.bn1 = nn.BatchNorm2d(24)
        self.conv2 = nn.Conv2d(24, 16, kernel, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(22, 12, kernel, bias=False)
        self.bn3 = nn.BatchNorm2d(12)
        self.conv4 = nn.Conv2d(12, 4, kernel)

    def choose(self, err):
        if self.mode == "thresholding":
            return (err > self.threshold).to(err.dtype)
        flat = err.flatten(1)
        top = flat.topk(self.sample_pixels // 16, 1, sorted=False).indices
        chosen = torch.zeros_like(flat).scatter(1, top, 1.0)
        return (chosen * (flat > 0)).view_as(err)

    def convolve(self, half, whole):
        x = self.bn1(self.conv1(half)).relu()
        x = self.bn2(self.conv2(x)).relu()
        x = F.interpolate(x, whole.shape[2:], mode="nearest")
        x = self.bn3(self.conv3(torch.cat([x, whole], 1))).relu()
        return self.conv4(x)

    def forward(self, src, bgr, pha, fgr, err, hid):
        h, w = src.shape[2:]
        images = torch.cat([src, bgr], 1)
        half = torch.cat(
            [
                resize(torch.cat([hid, pha, fgr], 1), (h // 2, w // 2)),
                resize(images, (h // 2, w // 2)),
            ],
            1,
        )
        borders = (3, 2) if self.kernel == 3 else (0, 0)
        if self.mode == "full":
            ref = src.new_ones(len(src), 1, h // 4, w // 4)
            x = self.convolve(pad(half, borders[0]), pad(images, borders[1]))
        else:
            ref = self.choose(resize(err.detach(), (h // 4, w // 4)))
            x = resize(torch.cat([pha, fgr], 1), (h, w))
            places = ref.squeeze(1).nonzero(as_tuple=True)
            if len(places[0]):
                patches = self.convolve(
                    crop(half, places, 2, borders[0]),
                    crop(images, places, 4, borders[1]),
                )
                x = replace(x, patches, places)
        return x[:, :1], x[:, 1:], ref


class MattingRefine(MattingBase):
    def __init__(
        self,
        backbone,
        scale=0.25,
        mode="sampling",
        sample_pixels=80_000,
        threshold=0.1,
        kernel=3,
    ):
        super().__init__(backbone)
        self.scale = scale
        self.refiner = Refiner(mode, sample_pixels, threshold, kernel)

    def forward(self, src, bgr):
        small = [math.floor(n * self.scale) for n in src.shape[2:]]
        src_sm, bgr_sm = resize(src, small), resize(bgr, small)
        pha_sm, fgr_sm, err_sm, hid_sm = self.coarse(src_sm, bgr_sm)
        pha, fgr, ref_sm = self.refiner(
            src, bgr, pha_sm, fgr_sm, err_sm, hid_sm
        )
        return (
            pha.clamp(0, 1),
            (fgr + src).clamp(0, 1),
            pha_sm,
            (fgr_sm + src_sm).clamp(0, 1),
            err_sm,
            ref_sm,
        )

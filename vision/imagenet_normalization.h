#pragma once

#include "tern/data/data_bunch.h"

namespace tern {

/// Adds a normalization with ImageNet's statistics to data without batch
/// transforms, for a network whose weights were trained on ImageNet.
DataBunch imagenet_normalized(DataBunch data);

}  // namespace tern

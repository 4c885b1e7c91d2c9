#pragma once

#include <memory>

#include "tern/vision/datasets/image_items.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

/// Returns a source that reads both images in memory and image files; null if
/// all items are files.
std::shared_ptr<const ImageSource> source_of(const ImageItems& items);

}  // namespace tern

#pragma once

#include <memory>

#include "tern/vision/datasets/image_items.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

/// Returns the source of items of which at least one is in memory; the others are
/// read from their files. Null if all are files.
std::shared_ptr<const ImageSource> source_of(const ImageItems& items);

}  // namespace tern

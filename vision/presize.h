#pragma once

#include <filesystem>
#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/learner/sink.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_pack.h"

namespace tern {

/// Decodes and shrinks every image of a data set once, into one file, and opens
/// it. An image keeps its proportions and just covers `size`; a smaller one is
/// not enlarged. Transforms then work on it as they would on the original.
///
/// A file that is there already is used when it was made of the same images (by
/// path, size and time of change), the same way; else it is made again. Images
/// are decoded by all cores; `sink` sees the progress, null is `silent()`.
///
/// An image that cannot be read is an error that names it, or left out where
/// the data set skips bad images.
///
/// \throws IoError if the file cannot be written, DataError for a bad image.
std::shared_ptr<const ImagePack> presize_images(
    const ImageDataset& images,
    const std::filesystem::path& file,
    ImageSize size,
    const Sink& sink = nullptr);

// `DataBunch::presize(folder, size, sink)` does this for its train, valid and
// test images, as folder/train.pack and so on, and reads them from there:
//
//   data.presize("cache", 160);
//
// It throws c10::ValueError where a loader's data set is no ImageDataset.

}  // namespace tern

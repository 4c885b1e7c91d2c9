#pragma once

#include <filesystem>
#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/data/support/sink.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_pack.h"

namespace tern {

/// Decodes and shrinks all images of a dataset into one file, and opens it.
/// Each image keeps its aspect ratio and is shrunk until it just covers `size`;
/// smaller images are not enlarged. Transforms work as on the original images.
///
/// Reuses an existing file if it was created from the same images (by path,
/// size and modification time) with the same options. Decodes on all cores.
///
/// If an image cannot be read, throws an error that names it, or skips it if
/// the dataset skips bad images.
///
/// \param sink  Receives progress and warnings; empty: the sink of the
///              dataset's options.
/// \throws IoError if the file cannot be written; DataError for a bad image.
std::shared_ptr<const ImagePack> presize_images(
    const ImageDataset& images,
    const std::filesystem::path& file,
    ImageSize size,
    const Sink& sink = {});

// `DataBunch::presize(folder, size, sink)` does this for the training,
// validation and test images, with the files folder/train.pack and so on, and
// reads the images from these files:
//
//   data.presize("cache", 160);
//
// It throws c10::ValueError if the dataset of a loader is not an ImageDataset.

/// Changes the size of the images in all later batches. Use it for
/// progressive resizing: start with small images, which train faster, and
/// finish with larger ones. Nothing else changes; a presized cache and batch
/// transforms are kept.
///
///   learn.fit_one_cycle(4);               // from 96 pixels
///   set_image_size(learn.data(), 160);
///   learn.fit_one_cycle(2);
///
/// \throws c10::ValueError for an invalid size, or if the dataset of a loader
///         is not an ImageDataset.
void set_image_size(DataBunch& data, ImageSize size);

}  // namespace tern

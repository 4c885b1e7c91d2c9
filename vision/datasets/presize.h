#pragma once

#include <filesystem>
#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/data/support/sink.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_pack.h"

namespace tern {

/// Decodes and shrinks every image of a dataset into one file, and opens it.
/// An image keeps its aspect ratio and just covers `size`; a smaller one is not
/// enlarged. Transforms work as on the original.
///
/// Reuses an existing file if it was created from the same images (by path,
/// size and modification time) with the same options. Decodes on all cores.
///
/// An image that cannot be read is an error that names it, or is skipped if the
/// dataset skips bad images.
///
/// \param sink  Receives the progress and warnings; empty: that of the data
///              set's options.
/// \throws IoError if the file cannot be written; DataError for a bad image.
std::shared_ptr<const ImagePack> presize_images(
    const ImageDataset& images,
    const std::filesystem::path& file,
    ImageSize size,
    const Sink& sink = {});

// `DataBunch::presize(folder, size, sink)` does this for its train, valid and
// test images, as folder/train.pack and so on, and reads them from there:
//
//   data.presize("cache", 160);
//
// It throws c10::ValueError where a loader's dataset is no ImageDataset.

/// Lets further batches have images of another size: progressive resizing, as a
/// network learns faster from small images and is then finished on larger ones.
/// All else stays, a presized cache and batch transforms too.
///
///   learn.fit_one_cycle(4);               // from 96 pixels
///   set_image_size(learn.data(), 160);
///   learn.fit_one_cycle(2);
///
/// \throws c10::ValueError for an invalid size, or where a loader's dataset is
///         no ImageDataset.
void set_image_size(DataBunch& data, ImageSize size);

}  // namespace tern

#pragma once

namespace tern {

/// What a reader of annotations does with a box that cannot be trained on: it
/// has no width or height, is NaN or infinite, reaches more than a pixel beyond
/// the image or has no part in it, is of an unknown class or, in COCO, of an
/// unknown image. Published files have some: COCO's train2017 has a few boxes
/// without a width or height.
enum class BadBoxes {
  /// Throws a DataError that names the box.
  error,
  /// Leaves the box out, the image stays. One warning for the file or folder
  /// counts them and names the first.
  skip,
};

}  // namespace tern

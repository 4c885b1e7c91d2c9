#pragma once

namespace tern {

/// How a reader of annotations handles a bad box. A box is bad if it has no
/// width or height, has a negative area, contains NaN or infinite numbers,
/// reaches more than a pixel beyond the image, is outside the image, or belongs
/// to an unknown class or, in COCO, to an unknown image. Published files
/// contain bad boxes: in COCO's train2017, a few have no width or height.
enum class BadBoxes {
  /// Throws a DataError that names the box.
  error,
  /// Skips the box and keeps the image. One warning per file or folder gives
  /// the number of bad boxes and names the first.
  skip,
};

}  // namespace tern

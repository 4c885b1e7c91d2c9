#pragma once

namespace tern {

/// How a reader of annotations handles a bad box. A box is bad if it has no
/// width or height, has a negative area, contains NaN or infinite numbers, or
/// reaches more than a pixel beyond the image or is outside it. It is also bad
/// if its class or, in COCO, its image is unknown. Published files contain bad
/// boxes: in COCO's train2017, a few have no width or height.
enum class BadBoxes {
  /// Throws a DataError that names the box.
  error,
  /// Skips the box and keeps the image. One warning per file or folder reports
  /// the number of bad boxes and names the first.
  skip,
};

}  // namespace tern

#pragma once

#include <string>
#include <string_view>

#include "tern/vision/datasets/annotations.h"

namespace tern {

/// Returns the boxes of an image as JSON. `read_box_json` reads exactly the
/// same numbers.
///
///   {"width":640,"height":480,"boxes":[
///   {"bbox":[10,20.5,30,40],"label":"car","crowd":true,"area":12.5}]}
///
/// `bbox` is x1, y1, x2, y2. `width` and `height` are omitted if the image size
/// is unknown, `crowd` if it is false, `area` if it is 0. `"pixels":"upright"`
/// or `"stored"` is added if `ImageBoxes::pixels` is known.
std::string to_box_json(const ImageBoxes& objects);

/// Parses the JSON that `to_box_json` writes.
/// \param where  The file or sample, for error messages.
/// \param clip   Accepts boxes that reach beyond the image, for
///               AnnotationOptions::clip.
/// \throws DataError naming the box and its value, if a box is not finite, has
///         no width, height or class, or reaches more than a pixel beyond the
///         image; if a field is missing, duplicated, unknown or has the wrong
///         type; or if the text is not JSON.
ImageBoxes read_box_json(
    std::string_view text,
    const std::string& where,
    bool clip = false);

}  // namespace tern

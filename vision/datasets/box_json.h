#pragma once

#include <string>
#include <string_view>

#include "tern/vision/datasets/annotations.h"

namespace tern {

/// Writes the boxes of an image as JSON, which `read_box_json` reads back as the
/// same numbers:
///
///   {"width":640,"height":480,"boxes":[
///   {"bbox":[10,20.5,30,40],"label":"car","crowd":true,"area":12.5}]}
///
/// bbox is x1, y1, x2, y2. Where the annotations give no size there is no width
/// and height; `crowd` is left out where it is false, `area` where it is 0.
std::string to_box_json(const ImageBoxes& objects);

/// Parses it.
/// \param where  The file or sample, for error messages.
/// \param clip   Accepts boxes that reach out of the image, for
///               AnnotationOptions::clip.
/// \throws DataError naming the box and its value: one that is not finite, has
///         no size or no class, or reaches more than a pixel out of the image; a
///         field that is missing, duplicated, unknown or not of its type; for
///         text that is no JSON.
ImageBoxes read_box_json(
    std::string_view text,
    const std::string& where,
    bool clip = false);

}  // namespace tern

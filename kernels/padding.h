#pragma once

namespace tern {

/// What is seen beyond the edge of an image: black, its outermost pixels, or
/// the image mirrored at the edge.
enum class Padding { zeros, border, reflection };

}  // namespace tern

#include "tern/vision/transforms/random_affine.h"

#include <cmath>

#include "tern/vision/transforms/drawn.h"

namespace tern {

// torchvision's map of the source to the result is T C R(angle) Sh S C^-1, with
// C to the middle, T the translation and Sh the shear; this is its inverse.
Matrix3
draw_affine(const AffineRanges& ranges, ImageSize size, SampleRng& rng) {
  constexpr double kRadians = 3.14159265358979323846 / 180;
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  const double angle = draw(ranges.degrees, rng) * kRadians;
  const double right = width * rng.uniform(-ranges.translate, ranges.translate);
  const double down = height * rng.uniform(-ranges.translate, ranges.translate);
  const double scale = draw(ranges.scale, rng);
  const double slant = std::tan(draw(ranges.shear, rng) * kRadians);
  return Matrix3::translation(width / 2, height / 2) *
         Matrix3{{1, slant, 0, 0, 1, 0, 0, 0, 1}} * Matrix3::rotation(-angle) *
         Matrix3::scaling(1 / scale, 1 / scale) *
         Matrix3::translation(-width / 2 - right, -height / 2 - down);
}

void check_affine(const char* name, const AffineRanges& ranges) {
  checked(name, ranges.degrees);
  checked(name, {-ranges.translate, ranges.translate});
  checked(name, ranges.scale, 0);
  checked(name, ranges.shear);
}

TransformPtr random_affine(const AffineRanges& ranges, float p) {
  check_affine("random_affine", ranges);
  return drawn("random_affine", p, [ranges](SamplePlan& plan, SampleRng& rng) {
    plan.view(draw_affine(ranges, plan.size(), rng), plan.size());
  });
}

}  // namespace tern

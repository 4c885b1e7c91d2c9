#pragma once

#include <memory>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/vision/transforms/transform.h"

namespace tern {

/// A transform that does `action(plan, rng)` with probability `p`.
template <class Action>
class Drawn final : public Transform {
 public:
  Drawn(float p, Action action, bool resizes)
      : p_(p), action_(std::move(action)), resizes_(resizes) {}

  void plan(SamplePlan& plan, SampleRng& rng) const override {
    // Drawn in any case, so that p changes no other transform's numbers.
    if (rng.uniform() < p_) {
      action_(plan, rng);
    }
  }
  bool resizes() const override { return resizes_; }

 private:
  float p_;
  Action action_;
  bool resizes_;
};

/// \param name  For the error message.
template <class Action>
TransformPtr
drawn(const char* name, float p, Action action, bool resizes = false) {
  TORCH_CHECK_VALUE(
      p >= 0 && p <= 1,
      fmt::format(
          "[{}] p is {}; expected a probability from 0 to 1.",
          name,
          p));
  return std::make_shared<const Drawn<Action>>(p, std::move(action), resizes);
}

/// \param above  What the low end must be larger than.
inline Range checked(const char* name, Range range, float above = -3.4e38f) {
  TORCH_CHECK_VALUE(
      range.low <= range.high && range.low > above,
      fmt::format(
          "[{}] the range is {} to {}; expected the lower end first{}.",
          name,
          range.low,
          range.high,
          above > -3e38f ? fmt::format(" and above {}", above) : ""));
  return range;
}

inline float draw(Range range, SampleRng& rng) {
  return rng.uniform(range.low, range.high);
}

/// From -1..1 in both directions to the pixels of the canvas.
inline Matrix3 pixels_of_unit(ImageSize size) {
  const double x = static_cast<double>(size.width) / 2;
  const double y = static_cast<double>(size.height) / 2;
  return {{x, 0, x, 0, y, y, 0, 0, 1}};
}

/// Shows `matrix`, which is given in units of half the canvas about its middle.
inline void view_in_units(SamplePlan& plan, const Matrix3& matrix) {
  const ImageSize size = plan.size();
  const double x = 2 / static_cast<double>(size.width);
  const double y = 2 / static_cast<double>(size.height);
  const Matrix3 units = {{x, 0, -1, 0, y, -1, 0, 0, 1}};
  plan.view(pixels_of_unit(size) * matrix * units, size);
}

}  // namespace tern

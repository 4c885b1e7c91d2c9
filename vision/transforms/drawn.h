#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <c10/util/Exception.h>

#include "tern/kernels/check.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Writes the description of a transform that treats every image the same.
using Describe = std::function<void(ImagePreprocessing&)>;

/// A transform that calls `action(plan, rng)` with probability `p`.
template <class Action>
class Drawn final : public Transform {
 public:
  Drawn(float p, Action action, bool resizes, Describe describe)
      : p_(p),
        action_(std::move(action)),
        resizes_(resizes),
        describe_(std::move(describe)) {}

  void plan(SamplePlan& plan, SampleRng& rng) const override {
    // Always draws a number, so that p does not change the random numbers of
    // later transforms.
    if (rng.uniform() < p_) action_(plan, rng);
  }
  bool resizes() const override { return resizes_; }
  bool describe(ImagePreprocessing& what) const override {
    if (describe_) describe_(what);
    return static_cast<bool>(describe_);
  }

 private:
  float p_;
  Action action_;
  bool resizes_;
  Describe describe_;
};

/// \param name      Function name for the error message.
/// \param describe  Null if the transform cannot be described.
template <class Action>
TransformPtr drawn(
    const char* name,
    float p,
    Action action,
    bool resizes = false,
    Describe describe = nullptr) {
  TERN_CHECK_VALUE(
      p >= 0 && p <= 1,
      "[{}] p is {}; expected a probability from 0 to 1.",
      name,
      p);
  return std::make_shared<const Drawn<Action>>(
      p,
      std::move(action),
      resizes,
      std::move(describe));
}

/// Returns `range`, or throws c10::ValueError if it is reversed.
/// \param above  The low end must be larger than this.
inline Range checked(const char* name, Range range, float above = -3.4e38f) {
  TERN_CHECK_VALUE(
      range.low <= range.high && range.low > above,
      "[{}] the range is {} to {}; expected the smaller number first{}.",
      name,
      range.low,
      range.high,
      above > -3e38f ? fmt::format(" and above {}", above) : "");
  return range;
}

inline float draw(Range range, SampleRng& rng) {
  return rng.uniform(range.low, range.high);
}

/// Changes the view by `matrix`, in units of half the canvas about its center.
inline void view_in_units(SamplePlan& plan, const Matrix3& matrix) {
  const ImageSize size = plan.size();
  plan.view(pixels_of_units(size) * matrix * units_of_pixels(size), size);
}

}  // namespace tern

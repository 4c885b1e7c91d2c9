#include "tern/kernels/conv_activation.h"

#include <limits>

namespace tern {

std::optional<ConvActivation>
ConvActivation::from(std::string_view name, double low, double high) {
  if (name == "none") return ConvActivation{};
  if (name == "relu") {
    return ConvActivation{
        Kind::clamp,
        0,
        std::numeric_limits<float>::infinity()};
  }
  if (name == "hardtanh") {
    return ConvActivation{
        Kind::clamp,
        static_cast<float>(low),
        static_cast<float>(high)};
  }
  if (name == "sigmoid") return ConvActivation{Kind::sigmoid};
  if (name == "swish") return ConvActivation{Kind::silu};
  if (name == "hardsigmoid") return ConvActivation{Kind::hardsigmoid};
  if (name == "hardswish") return ConvActivation{Kind::hardswish};
  return std::nullopt;
}

}  // namespace tern

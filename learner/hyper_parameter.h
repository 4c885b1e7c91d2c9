#pragma once

#include <string>

namespace tern {

/// What a schedule can move.
enum class HyperParameter {
  lr,
  momentum,  // Adam's first beta too
  weight_decay,
};

/// "lr", "momentum" or "weight_decay".
inline std::string to_string(HyperParameter hyper) {
  switch (hyper) {
    case HyperParameter::lr:
      return "lr";
    case HyperParameter::momentum:
      return "momentum";
    case HyperParameter::weight_decay:
      return "weight_decay";
  }
  return "";
}

}  // namespace tern

#pragma once

namespace tern {

/// How the values of the classes become one.
enum class Average {
  automatic,  ///< binary with two classes, else macro
  binary,     ///< that of class 1
  /// Mean over the classes of the model; 0 for one that never comes up, which
  /// fastai's, by sklearn, leaves out.
  macro,
  micro,     ///< all samples in one pot
  weighted,  ///< mean over the classes, weighted by their samples
};

}  // namespace tern

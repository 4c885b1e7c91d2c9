#pragma once

namespace tern {

/// How the values of several classes are combined.
enum class Average {
  /// binary if there are two classes and the loss ignores neither, else macro.
  automatic,
  binary,  ///< the value of class 1
  /// Mean over the classes of the model. A class that never occurs counts as 0;
  /// fastai (scikit-learn) leaves it out.
  macro,
  micro,     ///< all samples counted together
  weighted,  ///< mean over classes, weighted by their samples
};

}  // namespace tern

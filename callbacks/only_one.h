#pragma once

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

/// For on_add of a callback of a kind of which a Learner has room for one.
/// \param why  What two of them would do: "both change the loaders".
/// \throws c10::ValueError that names both if there is one already.
template <class Kind>
void check_only_one(
    const Learner& learn,
    const Callback& callback,
    const char* why) {
  const auto other = learn.find<Kind>();
  TORCH_CHECK_VALUE(
      !other,
      fmt::format(
          "[Learner::add] {} and {} would {}; remove one of them.",
          other ? other->name() : "",
          callback.name(),
          why));
}

/// The same for loggers: two of a kind may not write one file.
template <class Logger>
void check_own_file(const Learner& learn, const Logger& logger) {
  for (const auto& callback : learn.callbacks()) {
    const auto* const other = dynamic_cast<const Logger*>(callback.get());
    TORCH_CHECK_VALUE(
        !other || other->file().lexically_normal() !=
                      logger.file().lexically_normal(),
        fmt::format(
            "[Learner::add] two {} would both write {}; give one of them "
            "another .file.",
            logger.name(),
            logger.file().string()));
  }
}

}  // namespace tern

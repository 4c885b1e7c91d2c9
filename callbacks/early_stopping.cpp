#include "tern/callbacks/early_stopping.h"

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

EarlyStopping::EarlyStopping(Options options)
    : PatientCallback(
          "EarlyStopping",
          {options.monitor, options.mode, options.min_delta},
          options.patience) {}

void EarlyStopping::act(Learner& learn, int64_t waited) {
  learn.sink().line(fmt::format(
      "EarlyStopping: {} did not get better than {:.6f} for {} epoch{}; "
      "training ends.",
      monitor().monitored(),
      monitor().best(),
      waited,
      waited == 1 ? "" : "s"));
  learn.state().stop_training = true;
}

}  // namespace tern

#include "tern/learner/checkpoint/checkpoint_settings.h"

#include <set>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/fingerprint.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

namespace {

constexpr const char* kUsedBatches = "batches in an epoch";
constexpr const char* kFingerprint = "fingerprint of the data";

// What a callback such as LimitBatches leaves of them while fit runs.
Settings::value_type used_batches(Learner& learner) {
  return {kUsedBatches, std::to_string(learner.batches_per_epoch())};
}

}  // namespace

Settings training_settings(Learner& learner) {
  const auto masters = master_weights(learner);
  const auto dataset = learner.data().loader(Split::train).dataset_ptr();
  if (learner.parts().fingerprint.first != dataset) {
    learner.parts().fingerprint = {dataset, fingerprint(*dataset)};
  }
  Settings result = loop::data_settings(learner.parts());
  result.insert(
      {{kFingerprint, learner.parts().fingerprint.second},
       {"optimizer", optim::class_name(learner.optimizer())},
       {"weights", masters ? c10::toString(masters->dtype()) : "as they are"}});
  return result;
}

Settings running_fit_settings(Learner& learner) {
  Settings result = learner.parts().fit_settings;
  result.insert(used_batches(learner));
  return result;
}

Settings all_settings(Learner& learner) {
  Settings result = training_settings(learner);
  Settings of_fit = learner.parts().fit_settings;
  // Those of a running fit were taken before callbacks changed the loaders.
  if (learner.is_fitting()) {
    of_fit = running_fit_settings(learner);
    std::swap(result, of_fit);
  }
  result.merge(of_fit);
  return result;
}

std::vector<std::string> differences(
    const Settings& now,
    const Checkpoint& checkpoint) {
  // Older checkpoints do not say these; the number of batches tells.
  static const std::set<std::string> kNew = {
      "processes",
      kUsedBatches,
      kFingerprint};
  std::vector<std::string> result;
  for (const auto& [name, value] : now) {
    const auto saved = checkpoint.settings.find(name);
    const bool is_known = saved != checkpoint.settings.end();
    if (!is_known && kNew.contains(name)) continue;
    const std::string before = is_known ? saved->second : "not known";
    if (before != value) {
      result.push_back(fmt::format("{} was {}, is {}", name, before, value));
    }
  }
  return result;
}

}  // namespace tern

#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/model.h"

namespace tern {

/// For a number among the options of `where`, a callback or a call.
/// \throws c10::ValueError unless it is >= `least`; finite and > 0.
void check_at_least(
    const char* where,
    const char* name,
    double value,
    double least);
template <std::integral Int>
void check_at_least(
    const char* where,
    const char* name,
    Int value,
    double least) {
  check_at_least(where, name, static_cast<double>(value), least);
}
void check_positive(const char* where, const char* name, double value);

/// For a call that trains by itself or changes what a fit works with.
/// \throws c10::Error while a fit runs.
void check_not_fitting(const Learner& learn, const char* where);

/// A callback that sets hyper-parameters. Two of them would overwrite each
/// other.
class SetsHyperParameter {
 public:
  virtual ~SetsHyperParameter() = default;
  virtual bool sets(HyperParameter hyper) const {
    return hyper == HyperParameter::lr;
  }
};

/// For on_add of such a callback.
/// \throws c10::ValueError that names both if one that `learn` has sets the
///         same.
void check_sets_alone(const Learner& learn, const Callback& callback);

/// For on_add of a callback of which a Learner can have only one.
/// \param other  One that it has already; null: none.
/// \param why    What two of them would do: "both change the loaders".
/// \throws c10::ValueError that names both if there is another.
void check_only_one(
    const std::shared_ptr<Callback>& other,
    const Callback& callback,
    const char* why);

/// The name of the first tensor that no working model has, or "": a parameter
/// that is not finite, or a buffer with a NaN. (It may hold an infinity on
/// purpose, as the mask of an attention does.) Waits for the device once.
std::string broken_tensor(
    const std::vector<ModelTensor>& parameters,
    const std::vector<ModelTensor>& buffers);

/// `state[name]`, for load_state_dict.
/// \throws c10::ValueError that names `owner` if it is missing.
const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);
/// The same of numbers that were saved as a tensor of kDouble.
std::vector<double> saved_numbers(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);

}  // namespace tern

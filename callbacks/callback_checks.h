#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/model.h"

namespace tern {

/// Checks a numeric option of `where`, a callback or a function.
/// \throws c10::ValueError unless `value` >= `least` (check_at_least), or
///         unless `value` is finite and > 0 (check_positive).
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

/// Checks that no fit is running; for functions that train or change the state
/// of a fit.
/// \throws c10::Error while a fit runs.
void check_not_fitting(const Learner& learn, const char* where);

/// Interface of a callback that sets hyperparameters. Two callbacks that set
/// the same hyperparameter would overwrite each other.
class SetsHyperParameter {
 public:
  virtual ~SetsHyperParameter() = default;
  virtual bool sets(HyperParameter hyper) const {
    return hyper == HyperParameter::lr;
  }
};

/// Called from on_add of a SetsHyperParameter callback.
/// \throws c10::ValueError that names both callbacks if another callback of
///         `learn` sets the same hyperparameter.
void check_sets_alone(const Learner& learn, const Callback& callback);

/// Called from on_add of a callback that a Learner can have only once.
/// \param other  The callback of this kind that the Learner already has, or
///               null.
/// \param why    Why two such callbacks conflict, for the message: "both change
///               the loaders".
/// \throws c10::ValueError that names both callbacks if `other` is a different
///         callback.
void check_only_one(
    const std::shared_ptr<Callback>& other,
    const Callback& callback,
    const char* why);

/// Returns the name of the first diverged tensor, or "": a parameter with a NaN
/// or an infinity, or a buffer with a NaN. Buffers may contain infinities on
/// purpose, for example attention masks. Synchronizes with the device once.
std::string broken_tensor(
    const std::vector<ModelTensor>& parameters,
    const std::vector<ModelTensor>& buffers);

/// Returns `state[name]`; for load_state_dict.
/// \throws c10::ValueError that names `owner` if the entry is missing.
const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);
/// Like `saved_value`, for numbers that were saved as a kDouble tensor.
std::vector<double> saved_numbers(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);

}  // namespace tern

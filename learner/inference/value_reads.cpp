#include "tern/learner/inference/value_reads.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>

namespace tern {

namespace {

/// True if an operator's result or its size depends on tensor values. LibTorch
/// has tags for this, but four operators do not have them. Indexing with a mask
/// is detected by the nonzero that it calls.
bool tells_values(const at::RecordFunction& function) {
  static constexpr std::array<std::string_view, 4> untagged = {
      "aten::equal",
      "aten::_unique",
      "aten::_pack_padded_sequence",
      "aten::tensor_split"};
  const auto name = function.operator_name();
  if (!name || name->name == "aten::index") return false;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  return std::ranges::count(untagged, name->name) > 0 ||
         (op && (op->hasTag(at::Tag::data_dependent_output) ||
                 op->hasTag(at::Tag::dynamic_output_shape)));
}

thread_local bool has_read = false;

}  // namespace

ValueReads::ValueReads()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(
              [](const at::RecordFunction& function)
                  -> std::unique_ptr<at::ObserverContext> {
                has_read |= tells_values(function);
                return nullptr;
              })
              .scopes({at::RecordScope::FUNCTION}))) {
  has_read = false;
}

ValueReads::~ValueReads() {
  at::removeCallback(handle_);
}

bool ValueReads::is_any() const {
  return has_read;
}

}  // namespace tern

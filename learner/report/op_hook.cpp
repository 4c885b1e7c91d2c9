#include "tern/learner/report/op_hook.h"

#include <memory>
#include <utility>

#include "tern/learner/amp/keep_fp32.h"

namespace tern {

namespace {

struct Observed {
  OpHook::Function function;
  int64_t depth = 0;
};

// The inputs of an operation can only be read when it begins.
struct Begun final : at::ObserverContext {
  Tensors inputs;
};

// A LibTorch callback must not capture anything, so the state is thread-local.
Observed& observed() {
  thread_local Observed observed;
  return observed;
}

}  // namespace

OpHook::OpHook(Function function) {
  observed() = {std::move(function), 0};
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function)
              -> std::unique_ptr<at::ObserverContext> {
            ++observed().depth;
            auto begun = std::make_unique<Begun>();
            begun->inputs = tensors_of(function.inputs());
            return begun;
          },
          [](const at::RecordFunction& function, at::ObserverContext* context) {
            Observed& now = observed();
            --now.depth;
            const OpHook::Op op = {
                function.name(),
                now.depth,
                std::move(static_cast<Begun*>(context)->inputs),
                tensors_of(function.outputs())};
            const at::DisableRecordFunctionGuard unseen;
            now.function(op);
          })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

OpHook::~OpHook() {
  at::removeCallback(handle_);
  observed() = {};
}

}  // namespace tern

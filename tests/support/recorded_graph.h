#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>
#include <torch/types.h>

#include "tern/learner/cuda_graph/device_graph.h"
#include "tern/tests/support/recorded_kernels.h"

namespace tern::testing_support {

/// Replaces a CUDA graph on the CPU. `record` records each ATen operation and
/// each Tern kernel that the work calls in this thread, including calls by
/// autograd, with the memory that it reads and writes, and restores that memory
/// at the end. `replay` runs these operations on the same memory. It runs no
/// other code and does not notice that a tensor has been assigned different
/// memory since.
///
/// Rejects `nonzero`, which synchronizes with the device, as CUDA does. Reading
/// a value is allowed: code may do that with CPU tensors, as these are.
class RecordedGraph final : public DeviceGraph {
 public:
  void warm_up(const std::function<void()>& work) override { work(); }

  Tensors record(const std::function<Tensors()>& work) override {
    intercept_operations();
    ++records;
    calls_.clear();
    at::Generator random = at::detail::getDefaultCPUGenerator();
    const torch::Tensor random_state = random.get_state().clone();
    const at::CallbackHandle kernels = intercept_kernels();
    recording_ = this;
    const auto done = c10::make_scope_exit([&] {
      recording_ = nullptr;
      at::removeCallback(kernels);
      for (const auto& [key, memory] : std::exchange(seen_, {})) {
        const auto& [storage, content] = memory;
        std::copy(content.begin(), content.end(), bytes_of(storage));
      }
      random.set_state(random_state);
    });
    const c10::impl::IncludeDispatchKeyGuard on(kKey);
    return work();
  }

  void replay() override {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    for (const Call& call : calls_) {
      Stack stack = call.arguments;
      call.run(stack);
      auto result = call.results.begin();
      visit(stack, [&](const torch::Tensor& now) {
        if (result->defined()) result->copy_(now);
        ++result;
      });
    }
  }

  static inline int records = 0;

 private:
  using Stack = torch::jit::Stack;

  struct Call {
    std::function<void(Stack&)> run;  // replaces arguments by results
    Stack arguments = {};
    Tensors results = {};  // undefined if it is in the memory of an argument
  };

  // The memory's content before the recording; empty if it was allocated during
  // it.
  using Memory = std::pair<c10::Storage, std::vector<char>>;

  // Below autograd, so that its operations are recorded, and above the devices.
  // LibTorch registers no kernels for this key.
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

  static void intercept_operations() {
    static const torch::Library library = [] {
      torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
      all.fallback(torch::CppFunction::makeFromBoxedFunction<&operation>());
      return all;
    }();
  }

  static void operation(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) {
    // The operation includes the operations that it calls.
    const c10::impl::ExcludeDispatchKeyGuard once(kKey);
    const std::string& name = op.operator_name().name;
    TORCH_CHECK(
        name != "aten::nonzero",
        "nonzero waits for the device, not permitted while recording");
    Call call{[op](Stack& s) { op.callBoxed(s); }};
    const auto& schema = op.schema();
    call.arguments =
        recording_->keep(torch::jit::last(*stack, schema.arguments().size()));
    std::unordered_set<const void*> given;
    visit(call.arguments, [&](const torch::Tensor& t) {
      given.insert(memory_of(t));
    });
    const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kKey);
    op.redispatchBoxed(keys & below, stack);
    const auto results = torch::jit::last(*stack, schema.returns().size());
    visit(results, [&](const torch::Tensor& t) {
      const bool is_new = !given.contains(memory_of(t));
      if (is_new) recording_->seen_.try_emplace(memory_of(t), t.storage(), 0);
      call.results.push_back(is_new ? t.variable_data() : torch::Tensor());
    });
    // Allocation is not device work.
    if (!name.starts_with("aten::empty")) {
      recording_->calls_.push_back(std::move(call));
    }
  }

  // Tern's kernels bypass LibTorch's dispatcher but report to its profiler.
  static at::CallbackHandle intercept_kernels() {
    struct WithinKernel final : at::ObserverContext {
      c10::impl::ExcludeDispatchKeyGuard once{kKey};
    };
    return at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function)
                -> std::unique_ptr<at::ObserverContext> {
              const std::string name = function.name();
              if (!name.starts_with("tern::")) return nullptr;
              recording_->calls_.push_back(
                  {[name](Stack& s) { run_recorded_kernel(name, s); },
                   recording_->keep(function.inputs())});
              return std::make_unique<WithinKernel>();
            })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }

  // Copies of `values` whose tensors share the original memory, whose content
  // is saved.
  Stack keep(c10::ArrayRef<const c10::IValue> values) {
    visit(values, [this](const torch::Tensor& t) {
      if (seen_.contains(memory_of(t))) return;
      const char* const bytes = bytes_of(t.storage());
      const std::vector<char> content(bytes, bytes + t.storage().nbytes());
      seen_.try_emplace(memory_of(t), t.storage(), content);
    });
    Stack kept;
    for (const c10::IValue& value : values) kept.push_back(detached(value));
    return kept;
  }

  static c10::IValue detached(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      return value.toTensor().variable_data();
    }
    if (!value.isList()) return value;
    c10::List<c10::IValue> list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      list.set(i, detached(list.get(i)));
    }
    return list;
  }

  static const void* memory_of(const torch::Tensor& t) {
    return t.storage().unsafeGetStorageImpl();
  }
  static char* bytes_of(const c10::Storage& storage) {
    return static_cast<char*>(storage.mutable_data());
  }

  template <class Values, class F>
  static void visit(const Values& values, const F& f) {
    for (const c10::IValue& value : values) {
      if (value.isTensor() && value.toTensor().defined()) f(value.toTensor());
      if (value.isList()) visit(value.toListRef(), f);
    }
  }

  static inline thread_local RecordedGraph* recording_ = nullptr;

  std::vector<Call> calls_;
  std::unordered_map<const void*, Memory> seen_;
};

}  // namespace tern::testing_support

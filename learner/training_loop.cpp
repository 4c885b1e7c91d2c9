#include "tern/learner/training_loop.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/lambda_callback.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

using Event = void (Callback::*)(Learner&);
using Function = LambdaCallbackOptions::Function;

struct Step {
  const char* text;  // as it is printed, indented
  Event event = nullptr;
  Function LambdaCallbackOptions::*function = nullptr;
};

#define TERN_STEP(indent, event)                                   \
  Step {                                                           \
    indent #event, &Callback::event, &LambdaCallbackOptions::event \
  }

constexpr std::array kSteps = {
    TERN_STEP("", on_train_begin),
    Step{"for each epoch"},
    TERN_STEP("  ", on_epoch_begin),
    Step{"  for each training batch"},
    TERN_STEP("    ", on_batch_begin),
    Step{"    outputs = model(inputs)"},
    TERN_STEP("    ", on_loss_begin),
    Step{"    loss = loss(outputs, targets)"},
    TERN_STEP("    ", on_backward_begin),
    Step{"    loss.backward()"},
    TERN_STEP("    ", on_backward_end),
    TERN_STEP("    ", on_step),
    Step{"    optimizer.step()"},
    TERN_STEP("    ", on_step_end),
    Step{"    zero the gradients"},
    TERN_STEP("    ", on_batch_end),
    TERN_STEP("  ", on_eval_begin),
    Step{"  for each validation batch: on_batch_begin, model, on_loss_begin, "
         "loss, on_batch_end"},
    TERN_STEP("  ", on_eval_end),
    TERN_STEP("  ", on_epoch_end),
    TERN_STEP("", on_train_end)};

#undef TERN_STEP

// The function that a call of `event` on `callback` reaches. C++ has no way to
// ask; this reads the table of virtual functions, which GCC and Clang lay out
// by the Itanium ABI: a pointer to a virtual member function begins with its
// place in the table, in bytes, plus 1 on most processors.
const void* function_of(const Callback& callback, Event event) {
  std::ptrdiff_t place = 0;
  std::memcpy(&place, &event, sizeof place);
  const std::byte* table = nullptr;
  std::memcpy(&table, static_cast<const void*>(&callback), sizeof table);
  const void* function = nullptr;
  std::memcpy(&function, table + (place & ~std::ptrdiff_t{1}), sizeof function);
  return function;
}

bool acts(const Callback& callback, const Step& step) {
  if (const auto* lambda = dynamic_cast<const LambdaCallback*>(&callback)) {
    return static_cast<bool>(lambda->functions().*step.function);
  }
  static const Callback idle;
  return function_of(callback, step.event) != function_of(idle, step.event);
}

Callbacks acting(const Callbacks& callbacks, const Step& step) {
  Callbacks result;
  for (const auto& callback : callbacks) {
    if (acts(*callback, step)) result.push_back(callback);
  }
  return result;
}

}  // namespace

Callbacks acting_at(
    const Callbacks& callbacks,
    void (Callback::*event)(Learner&)) {
  for (const Step& step : kSteps) {
    if (step.event == event) return acting(callbacks, step);
  }
  return {};
}

std::vector<std::string> training_loop(const Callbacks& callbacks) {
  std::vector<std::string> lines;
  for (const Step& step : kSteps) {
    if (!step.event) {
      lines.emplace_back(step.text);
      continue;
    }
    std::vector<std::string> names;
    for (const auto& callback : acting(callbacks, step)) {
      names.push_back(callback->name());
    }
    lines.push_back(
        names.empty()
            ? step.text
            : fmt::format("{:<26}{}", step.text, fmt::join(names, ", ")));
  }
  return lines;
}

Learner& Learner::show_training_loop() {
  for (const std::string& line : training_loop(callbacks_)) sink().line(line);
  return *this;
}

}  // namespace tern

#include "tern/learner/report/training_loop.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

struct Line {
  const char* text;  // as it is printed, indented
  std::optional<Event> event = {};
};

constexpr std::array kLines = {
    Line{"on_train_begin", Event::train_begin},
    Line{"for each epoch"},
    Line{"  on_epoch_begin", Event::epoch_begin},
    Line{"  for each training batch"},
    Line{"    on_batch_begin", Event::batch_begin},
    Line{"    outputs = model(inputs)"},
    Line{"    on_loss_begin", Event::loss_begin},
    Line{"    loss = loss(outputs, targets)"},
    Line{"    on_backward_begin", Event::backward_begin},
    Line{"    loss.backward()"},
    Line{"    on_backward_end", Event::backward_end},
    Line{"    on_step", Event::step},
    Line{"    optimizer.step()"},
    Line{"    on_step_end", Event::step_end},
    Line{"    zero the gradients"},
    Line{"    on_batch_end", Event::batch_end},
    Line{"  on_eval_begin", Event::eval_begin},
    Line{"  for each validation batch: on_batch_begin, model, on_loss_begin, "
         "loss, on_batch_end"},
    Line{"  on_eval_end", Event::eval_end},
    Line{"  on_epoch_end", Event::epoch_end},
    Line{"on_train_end", Event::train_end}};

}  // namespace

std::vector<std::string> training_loop(const Callbacks& callbacks) {
  std::vector<std::string> lines;
  for (const Line& line : kLines) {
    std::vector<std::string> names;
    for (const CallbackHandle& callback : callbacks) {
      if (line.event && callback.acts_at(*line.event)) {
        names.push_back(callback->name());
      }
    }
    lines.push_back(
        names.empty()
            ? line.text
            : fmt::format("{:<26}{}", line.text, fmt::join(names, ", ")));
  }
  return lines;
}

Learner& Learner::show_training_loop() {
  for (const std::string& line : training_loop(parts_->callbacks))
    sink().line(line);
  return *this;
}

}  // namespace tern

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/recorder.h"
#include "tern/learner/report/report.h"
#include "tern/learner/report/run_facts.h"
#include "tern/tests/support/tiny.h"

namespace tern::training_loop_test {
namespace {

using namespace testing_support;  // NOLINT
using Names = std::vector<std::string>;

struct Base : Callback {
  void on_step(Learner&) override {}
};
struct Derived final : Base {
  void on_epoch_end(Learner&) override {}
  int order() const override { return -5; }
};
class Hidden final : public Callback {
  void on_step(Learner&) override {}
};
struct Named : Callback {
  void on_step(Learner&) override {}
  std::string name() const override { return "my own"; }
};

TEST(TrainingLoop, FindsTheCallbacksOfAnEvent) {
  const Callbacks callbacks = {
      std::make_shared<Derived>(),
      std::make_shared<Base>(),
      std::make_shared<LambdaCallback>(
          LambdaCallbackOptions{.on_step = [](Learner&) {}}),
      std::make_shared<Named>()};
  const auto names_at = [&](Event event) {
    Names names;
    for (const auto& callback : callbacks) {
      if (callback.acts_at(event)) names.push_back(callback->name());
    }
    return names;
  };
  EXPECT_EQ(
      names_at(Event::step),
      (Names{"Derived", "Base", "LambdaCallback", "my own"}));
  EXPECT_EQ(names_at(Event::epoch_end), Names{"Derived"});
  EXPECT_EQ(names_at(Event::batch_end), Names{});
  // Private overrides count. A pointer to the base class does not show
  // overrides.
  EXPECT_TRUE(CallbackHandle(std::make_shared<Hidden>()).acts_at(Event::step));
  EXPECT_FALSE(
      CallbackHandle(std::make_shared<Hidden>()).acts_at(Event::batch_end));
  const std::shared_ptr<Callback> base = std::make_shared<Derived>();
  EXPECT_TRUE(CallbackHandle(base).acts_at(Event::batch_end));
}

TEST(TrainingLoop, IsPrintedInOrder) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<Derived>();
  show_training_loop(learn);
  std::string text;
  for (const std::string& line : sink->lines) text += line + "\n";
  EXPECT_EQ(text, R"(on_train_begin            Recorder, ProgressPrinter
for each epoch
  on_epoch_begin          Recorder, ProgressPrinter
  for each training batch
    on_batch_begin
    outputs = model(inputs)
    on_loss_begin
    loss = loss(outputs, targets)
    on_backward_begin
    loss.backward()
    on_backward_end
    on_step               Derived
    optimizer.step()
    on_step_end
    zero the gradients
    on_batch_end          Recorder, ProgressPrinter
  on_eval_begin
  for each validation batch: on_batch_begin, model, on_loss_begin, loss, on_batch_end
  on_eval_end
  on_epoch_end            Recorder, Derived, ProgressPrinter
on_train_end              Recorder
)");
}

}  // namespace
}  // namespace tern::training_loop_test

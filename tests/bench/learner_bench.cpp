// Overhead of the Learner over a hand-written loop with the same net, data and
// optimizer. The Learner also runs three callbacks, records every loss and
// updates the progress line. Exit code 1 if a goal is missed.
//
// The memory addresses of a net's tensors change a step's time by more than the
// Learner does. So both nets are re-created every few rounds, in alternating
// order.
#include <cstdio>
#include <optional>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/bench/measure.h"

namespace {

using namespace tern;  // NOLINT: a program

constexpr int64_t kBatch = 64, kSteps = 100, kInputs = 256, kHidden = 352;

torch::nn::Sequential net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(
      torch::nn::Linear(kInputs, kHidden),
      torch::nn::ReLU(),
      torch::nn::Linear(kHidden, kHidden),
      torch::nn::ReLU(),
      torch::nn::Linear(kHidden, 10));
}

class LoopByHand {
 public:
  explicit LoopByHand(const DataLoader& loader) : loader_(loader) {}

  void fit() {
    net_->train();
    auto batches = loader_.epoch(epoch_++);
    while (auto batch = batches.next()) {
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          net_->forward(batch->inputs[0]),
          batch->targets[0]);
      loss.backward();
      optimizer_.step();
      optimizer_.zero_grad();
    }
  }

 private:
  const DataLoader& loader_;
  torch::nn::Sequential net_ = net();
  optim::AdamW optimizer_{net_->parameters(), torch::optim::AdamWOptions(1e-3)};
  int64_t epoch_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  bench::read_arguments(argc, argv);
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({kBatch * kSteps, kInputs})},
      Tensors{torch::randint(10, {kBatch * kSteps})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = kBatch, .workers = 0});
  data.device = torch::kCPU;

  const Sink sink = terminal(std::fopen("/dev/null", "w"));
  int64_t calls = 0;
  bench::Rounds rounds;
  for (int nets = 0; nets < 16; ++nets) {
    std::optional<LoopByHand> by_hand;
    if (nets % 2 == 0) by_hand.emplace(*data.train);
    Learner learn(data, net(), {.sink = sink});
    if (!by_hand) by_hand.emplace(*data.train);
    for (int i = 0; i < 3; ++i) {
      learn.add<LambdaCallback>(
          {.on_batch_begin = [&](Learner&) { ++calls; },
           .on_backward_end = [&](Learner&) { ++calls; },
           .on_batch_end = [&](Learner&) { ++calls; }});
    }
    rounds.run([&] { learn.fit(1, 1e-3); }, [&] { by_hand->fit(); }, 10);
  }
  const bench::Measured m = rounds.medians();
  fmt::print(
      "({} steps of {:.2f} ms, {} calls of callbacks)\n",
      kSteps,
      m.theirs / kSteps * 1e3,
      calls);
  // At most 1.01 times the time of the hand-written loop.
  return bench::report_times("learner_vs_loop_by_hand", m, 1 / 1.01) ? 0 : 1;
}

// A training run of two processes for ./dev bench peers: a Learner with
// to_distributed(). Writes the time of a step and how much of the all-reduce
// backward hides, as JSON for the runner; peers/ddp_torch.py does the same in
// Python. If RANK is set, this is one of the processes.
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/bench/measure.h"
#include "tern/tests/support/launch.h"
#include "tern/vision/models/cnn/resnet.h"

namespace {

using namespace tern;  // NOLINT: a program

constexpr int64_t kBatch = 8, kWarmUp = 3;

void train(int64_t ranks, int64_t steps, const std::string& json) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const int64_t samples = ranks * kBatch * (steps + kWarmUp);
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{torch::randn({ranks * kBatch, 3, 128, 128})
                      .repeat({steps + kWarmUp, 1, 1, 1})},
          Tensors{torch::randint(1000, {samples})}),
      nullptr,
      {.batch_size = kBatch, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(
      data,
      resnet18(),
      {.optimizer =
           optimizer<optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9)),
       .weight_decay = 0,
       .sink = silent()});
  learn.to_distributed();
  std::vector<double> ends;
  learn.add<LambdaCallback>(
      {.on_batch_end = [&](Learner&) { ends.push_back(bench::now()); },
       .order = callback_order::kLast + 1});
  learn.fit(1);
  if (!communicator(learn).is_main_process()) return;
  std::vector<double> times;
  for (size_t i = kWarmUp; i < ends.size(); ++i) {
    times.push_back(ends[i] - ends[i - 1]);
  }
  const CommunicationTimes travel = learn.find<Distributed>()->times();
  std::ofstream(json) << fmt::format(
      "{{\"step_seconds\": {}, \"hidden_share\": {}, \"travel_seconds\": {}, "
      "\"unhidden_seconds\": {}}}\n",
      bench::median(times),
      travel.hidden / travel.communication,
      travel.communication,
      travel.communication - travel.hidden);
}

int train_in_processes(int64_t ranks, int64_t steps, const std::string& json) {
  LaunchEnvironment environment;
  environment.world_size = ranks;
  environment.master_port = testing_support::free_port();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    environment.rank = environment.local_rank = rank;
    testing_support::export_environment(environment);
    train(ranks, steps, json);
    ::_exit(0);
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string json;
  int64_t steps = 10;
  CLI::App app{"Times a training step of two processes"};
  app.add_option("--steps", steps)->check(CLI::PositiveNumber);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  const auto launched = LaunchEnvironment::read();
  if (!launched.is_distributed()) return train_in_processes(2, steps, json);
  train(launched.world_size, steps, json);
}

// Memory that one rank keeps between steps when training ResNet-50 with AdamW
// (weights, master weights and moments), with and without shard_optimizer, as a
// Markdown table. Counted in tensors, because MemoryMeter misses what Gloo's
// threads free.
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <torch/utils.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/fused_optimizer.h"
#include "tern/tests/support/launch.h"
#include "tern/vision/models/cnn/resnet.h"

namespace {

using namespace tern;  // NOLINT: a program

int64_t kept_bytes(Learner& learn) {
  size_t bytes = 0;
  for (const ModelTensor& t : learn.model().state()) bytes += t.tensor.nbytes();
  if (master_weights(learn)) {
    for (const auto& m : master_weights(learn)->masters()) bytes += m.nbytes();
  }
  for (const auto& entry : learn.optimizer().state()) {
    auto& state = dynamic_cast<optim::FusedParamState&>(*entry.second);
    for (const auto& [name, tensor] : state.tensors()) {
      if (tensor->defined()) bytes += tensor->nbytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

// Runs in a separate process per rank. All ranks keep about the same number of
// bytes, up to how the parameters can be divided, so rank 0 prints its own.
void measure(bool in_bf16, bool is_divided) {
  at::set_num_threads(1);
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({16, 3, 32, 32})},
      Tensors{torch::randint(10, {16})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, resnet50({.num_classes = 10}), {.sink = silent()});
  if (in_bf16) learn.to_bf16();
  learn.to_distributed({.shard_optimizer = is_divided});
  int64_t kept = 0;
  learn.add<LambdaCallback>(
      {.on_batch_end = [&](Learner&) { kept = kept_bytes(learn); },
       .order = callback_order::kLast + 1});
  learn.fit(1);
  if (!communicator(learn).is_main_process()) return;
  fmt::print(
      "| {} | {} | {:.0f} MiB |\n",
      in_bf16 ? "`to_bf16()`" : "fp32",
      is_divided ? communicator(learn).world_size() : 1,
      static_cast<double>(kept) / (1 << 20));
  std::fflush(stdout);
}

int run_ranks(int64_t world_size, bool in_bf16, bool is_divided) {
  LaunchEnvironment environment;
  environment.world_size = world_size;
  environment.master_port = testing_support::free_port();
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (::fork() != 0) continue;
    environment.rank = environment.local_rank = rank;
    testing_support::export_environment(environment);
    measure(in_bf16, is_divided);
    ::_exit(0);
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed;
}

}  // namespace

int main() {
  fmt::print(
      "| ResNet-50, AdamW | divided by | kept by one |\n|---|---|---|\n");
  std::fflush(stdout);
  int failed = 0;
  for (const bool in_bf16 : {false, true}) {
    failed |= run_ranks(2, in_bf16, /*is_divided=*/false);
    for (const int64_t ranks : {2, 4}) {
      failed |= run_ranks(ranks, in_bf16, /*is_divided=*/true);
    }
  }
  return failed == 0 ? 0 : 1;
}

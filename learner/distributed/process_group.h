#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/communicator.h"
#include "tern/learner/distributed/launch_environment.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace tern {

struct ProcessGroupOptions {
  /// How long a rank waits for the others, in each operation.
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
  /// Where this process computes. A CUDA device: tensors there travel by NCCL,
  /// those on the CPU by Gloo as ever. Learner::to_distributed sets it.
  torch::Device device = torch::kCPU;
};

/// The processes that train together, over PyTorch's own c10d: Gloo for CPUs,
/// NCCL for GPUs.
/// Every call but those that say otherwise is made by all ranks in the same
/// order.
///
/// All of them \throw DistributedError when a rank does not answer within the
/// timeout, has gone, or makes another call than the others (not told for CUDA
/// tensors, whose ranks wait for the timeout); the group is of no use after that.
class ProcessGroup final : public Communicator {
 public:
  /// Waits until all ranks are there.
  /// \throws DistributedError if they are not within the timeout, or the
  ///         address cannot be used; c10::ValueError for a timeout that is not
  ///         positive or a device that is not there.
  static std::shared_ptr<ProcessGroup> connect(
      const LaunchEnvironment& environment,
      const ProcessGroupOptions& options = {});
  /// Never throws and never ends the program, however broken the group is.
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;

  int64_t rank() const override { return environment_.rank; }
  int64_t world_size() const override { return environment_.world_size; }
  const ProcessGroupOptions& options() const { return options_; }

  /// All ranks' tensors become those of rank `root`, in place. Any mix of
  /// types and devices; sent together.
  void broadcast(const Tensors& tensors, int64_t root = 0) override;
  void all_reduce(const torch::Tensor& tensor) override;
  /// What every rank gave, in order of rank. At most 16 MiB each.
  std::vector<std::string> all_gather(const std::string& text);
  void barrier();

  /// \throws DistributedError, on all ranks, unless all gave the same text;
  ///         says who has what.
  void check_equal(const std::string& what, const std::string& value) override;
  /// \param advice  What to do, where the start of the programs is not to blame.
  void check_equal(
      const std::string& what,
      const std::string& value,
      const std::string& advice);

  /// Tells the others why this rank leaves. Called by one rank alone; does
  /// nothing when they cannot be told.
  void tell_error(const std::string& text) noexcept;
  /// What another rank has told, or nothing. Called by one rank alone; waits a
  /// moment, since the news may be on its way.
  std::optional<std::string> error_of_others() noexcept;

  /// Whether an error comes from a connection, not from what this rank did.
  static bool is_about_connections(const std::string& reason);

  /// Leaves the others, who then find this rank gone at once. Every later
  /// operation fails. Called by one rank alone. Rank 0, after `tell_error`, waits
  /// up to five seconds until the others have read it.
  void leave() noexcept;

  /// The group over which gradients travel; for GradientReducer.
  c10d::ProcessGroup& gradients();

 private:
  ProcessGroup(
      LaunchEnvironment environment,
      const ProcessGroupOptions& options);
  std::vector<std::string> all_gather(
      const std::string& text,
      const std::string& what);
  /// \param call     What all ranks compare before it; empty: nothing.
  /// \param numbers  Added up over ranks on the way.
  template <class F>
  void all_take_part(
      const char* what,
      const std::string& call,
      const F& f,
      std::span<double> numbers = {});
  void begin_call(const std::string& call, std::span<double> numbers);
  template <class F>
  std::optional<std::string> ask_store(
      std::chrono::milliseconds patience,
      F f) noexcept;

  void wait_for_readers() noexcept;

  struct Connection;
  Connection& connection();
  LaunchEnvironment environment_;
  ProcessGroupOptions options_;
  std::unique_ptr<Connection> connection_;
  bool others_may_read_ = false;  // an error, in the store
};

}  // namespace tern

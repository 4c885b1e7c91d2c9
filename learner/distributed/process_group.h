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
  /// Maximum time that a rank waits for the others in each operation.
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
  /// The device on which this process computes. With a CUDA device, NCCL sends
  /// CUDA tensors; Gloo still sends CPU tensors. Set by
  /// Learner::to_distributed.
  torch::Device device = torch::kCPU;
};

/// The processes that train together, connected by PyTorch's c10d: Gloo for
/// CPUs, NCCL for GPUs. Unless stated otherwise, all ranks must make every call
/// in the same order.
///
/// All calls throw DistributedError if a rank exited, timed out, or made a
/// different call from the others. (A different call is not detected for CUDA
/// tensors; the ranks then time out.) The group cannot be used after that.
class ProcessGroup final : public Communicator {
 public:
  /// Waits until all ranks are connected.
  /// \throws DistributedError if they are not connected within the timeout, or
  ///         if the address cannot be used; c10::ValueError if the timeout is
  ///         not positive or the device does not exist.
  static std::shared_ptr<ProcessGroup> connect(
      const LaunchEnvironment& environment,
      const ProcessGroupOptions& options = {});
  /// Never throws and never terminates the program, even if the group is
  /// broken.
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;

  int64_t rank() const override { return environment_.rank; }
  int64_t world_size() const override { return environment_.world_size; }
  const ProcessGroupOptions& options() const { return options_; }

  /// Replaces the tensors of all ranks by rank `root`'s tensors, in place. The
  /// tensors may have different dtypes and devices and are sent together.
  void broadcast(const Tensors& tensors, int64_t root = 0) override;
  void all_reduce(const torch::Tensor& tensor) override;
  /// Returns the strings of all ranks, ordered by rank; each at most 16 MiB.
  std::vector<std::string> all_gather(const std::string& text);
  void barrier();

  /// \throws DistributedError on all ranks, with the values of the ranks,
  ///         unless all ranks passed the same value.
  void check_equal(const std::string& what, const std::string& value) override;
  /// \param advice  The advice in the error message. Needed if the cause is not
  ///                the way in which the programs were started.
  void check_equal(
      const std::string& what,
      const std::string& value,
      const std::string& advice);

  /// Reports this rank's error to the other ranks. Called by one rank alone.
  /// Does nothing if the others cannot be reached.
  void tell_error(const std::string& text) noexcept;
  /// Returns the error that another rank reported; unset if there is none.
  /// Called by one rank alone. Waits briefly, because a report may still
  /// arrive.
  std::optional<std::string> error_of_others() noexcept;

  /// True if an error was caused by a connection, not by this rank.
  static bool is_about_connections(const std::string& reason);

  /// Disconnects this rank, so that the operations of the others fail at once.
  /// Every later operation of this rank fails. Called by one rank alone. After
  /// `tell_error`, rank 0 waits up to five seconds until the others have read
  /// the error.
  void leave() noexcept;

  /// Returns the c10d group that sends gradients; for GradientReducer.
  c10d::ProcessGroup& gradients();

 private:
  ProcessGroup(
      LaunchEnvironment environment,
      const ProcessGroupOptions& options);
  std::vector<std::string> all_gather(
      const std::string& text,
      const std::string& what);
  /// \param call  Description of this call, compared across ranks first; empty:
  ///              not compared.
  /// \param numbers  Summed over ranks in the same message as that comparison.
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
  bool others_may_read_ = false;  // an error that is in the store
};

}  // namespace tern

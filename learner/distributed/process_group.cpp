#include "tern/learner/distributed/process_group.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/distributed/backends.h"
#include "tern/learner/forward_error.h"

namespace tern {

namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxText = 16 << 20;
// Of tensors that are sent together, as in torch.nn.parallel.
constexpr size_t kBroadcastBytes = 250 << 20;
// Who leaves with an error tells it before its connections close, also where a
// busy machine takes its time; the others look for it kLooks times,
// kNewsPatience at least, and wait for an answer a part of the group's timeout.
// The rank whose process holds the store waits kReadPatience for them to read.
constexpr milliseconds kTellPatience(2000), kNewsPatience(200),
    kLeastAskPatience(300), kReadPatience(5000);
constexpr int kLooks = 10, kPartOfTimeout = 20;

// Gloo writes to sockets whose other end may have died; the signal would then
// end this program too before it can say so. Python ignores it as well.
void ignore_broken_pipes() {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

c10::intrusive_ptr<::c10d::Store> connect_store(
    const LaunchEnvironment& environment,
    milliseconds timeout) {
  ::c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.isServer = environment.rank == 0 && !environment.has_agent_store;
  options.numWorkers = static_cast<size_t>(environment.world_size);
  options.waitWorkers = false;  // the group waits for all, with their names
  options.timeout = timeout;
  return c10::make_intrusive<::c10d::PrefixStore>(
      fmt::format("tern/{}/{}", environment.run, environment.restarts),
      c10::make_intrusive<::c10d::TCPStore>(
          environment.master_address,
          options));
}

std::string error_key(int64_t rank) {
  return fmt::format("error/{}", rank);
}

std::string left_key(int64_t rank) {
  return fmt::format("left/{}", rank);
}

}  // namespace

struct ProcessGroup::Connection {
  c10::intrusive_ptr<::c10d::Store> store;
  // Null after `leave`. The store stays: rank 0's is read by the others.
  c10::intrusive_ptr<::c10d::ProcessGroup> group;
};

std::shared_ptr<ProcessGroup> ProcessGroup::connect(
    const LaunchEnvironment& environment,
    const ProcessGroupOptions& options) {
  TERN_CHECK_VALUE(
      options.timeout.count() > 0,
      "[ProcessGroup::connect] the timeout is {} ms; expected more than 0.",
      options.timeout.count());
  TERN_CHECK_VALUE(
      options.device.is_cpu() || options.device.is_cuda(),
      "[ProcessGroup::connect] the device is {}; expected a CPU or a CUDA "
      "device.",
      options.device.str());
  check_device_exists(
      "ProcessGroup::connect",
      options.device,
      "start as many processes as there are, or set DataBunch::device to the "
      "CPU");
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(environment, options));
}

ProcessGroup::ProcessGroup(
    LaunchEnvironment environment,
    const ProcessGroupOptions& options)
    : environment_(std::move(environment)), options_(options) {
  ignore_broken_pipes();
  try {
    const Member me = {
        connect_store(environment_, options.timeout),
        static_cast<int>(rank()),
        static_cast<int>(world_size()),
        options.timeout};
    const auto gloo = make_gloo_group(me, environment_.master_address);
    const auto group = c10::make_intrusive<::c10d::ProcessGroup>(
        me.store,
        me.rank,
        me.world_size);
    constexpr auto kGloo = ::c10d::ProcessGroup::BackendType::GLOO;
    group->setBackend(torch::kCPU, kGloo, gloo);
    group->setDefaultBackend(kGloo);
    if (options.device.is_cuda()) {
      const c10::DeviceGuard on_device(options.device);
      try {
        group->setBackend(
            torch::kCUDA,
            ::c10d::ProcessGroup::BackendType::NCCL,
            make_nccl_group(me));
      } catch (...) {
        gloo->abort();
        throw;
      }
    }
    connection_ = std::make_unique<Connection>(Connection{me.store, group});
  } catch (const std::exception& error) {
    throw DistributedError(fmt::format(
        "[ProcessGroup::connect] rank {} of {} found no way to the others "
        "through {}:{} within {} ms: {} Check that all {} processes run, that "
        "the port is free and that the address can be reached.",
        rank(),
        world_size(),
        environment_.master_address,
        environment_.master_port,
        options.timeout.count(),
        message_of(error),
        world_size()));
  }
}

bool ProcessGroup::is_about_connections(const std::string& reason) {
  return reason.find("gloo") != std::string::npos ||
         reason.find("NCCL") != std::string::npos;
}

ProcessGroup::~ProcessGroup() {
  try {
    connection_.reset();
  } catch (...) {  // NOLINT: there is nobody to tell
  }
}

void ProcessGroup::leave() noexcept {
  // An NCCL group that is not told would wait for what a lost rank does not
  // send any more.
  if (!connection_ || !connection_->group) return;
  try {
    connection_->group->abort();
    connection_->group.reset();
  } catch (...) {  // NOLINT: there is nobody to tell
  }
  ask_store(kTellPatience, [key = left_key(rank())](::c10d::Store& store) {
    store.set(key, "left");
    return std::string();
  });
  const bool holds_store = rank() == 0 && !environment_.has_agent_store;
  if (holds_store && has_told_) wait_for_readers();
}

// Or the process ends, and the store with it, before the others know why.
void ProcessGroup::wait_for_readers() noexcept {
  ask_store(kReadPatience, [size = world_size()](::c10d::Store& store) {
    std::vector<std::string> all_have_left;
    for (int64_t rank = 1; rank < size; ++rank) {
      all_have_left.push_back(left_key(rank));
    }
    const auto end = std::chrono::steady_clock::now() + kReadPatience;
    while (!store.check(all_have_left) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(20));
    }
    return std::string();
  });
}

::c10d::ProcessGroup& ProcessGroup::c10d() {
  if (!connection_ || !connection_->group) {
    throw DistributedError(
        "[ProcessGroup] this rank has left the others after an error; start "
        "the program again.");
  }
  return *connection_->group;
}

template <class F>
void ProcessGroup::all_take_part(const char* what, const F& f) {
  TORCH_CHECK(
      !is_forward_repeated(),
      "[ProcessGroup] the other ranks do not repeat this forward pass.");
  std::string reason;
  try {
    f();
    return;
  } catch (const std::exception& error) {
    reason = message_of(error);
  }
  const auto told = error_of_others();
  if (!told && !is_about_connections(reason)) tell_error(reason);
  throw DistributedError(
      told ? fmt::format("[ProcessGroup::{}] {}", what, *told)
           : fmt::format(
                 "[ProcessGroup::{}] rank {} of {} lost the others; one has "
                 "ended, or did not answer within {} ms: {}",
                 what,
                 rank(),
                 world_size(),
                 options_.timeout.count(),
                 reason));
}

void ProcessGroup::broadcast(const Tensors& tensors, int64_t root) {
  if (tensors.empty()) return;
  const torch::NoGradGuard no_grad;
  all_take_part("broadcast", [&] {
    ::c10d::broadcast_coalesced(
        c10::intrusive_ptr<::c10d::ProcessGroup>::reclaim_copy(&c10d()),
        tensors,
        kBroadcastBytes,
        static_cast<int>(root));
  });
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor) {
  all_take_part("all_reduce", [&] {
    Tensors message = {tensor};
    c10d().allreduce(message)->wait();
  });
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text) {
  TERN_CHECK_VALUE(
      text.size() <= kMaxText,
      "[ProcessGroup::all_gather] the text has {} bytes; expected at most {}.",
      text.size(),
      kMaxText);
  std::vector<std::string> all;
  const auto add_up = [this](Tensors message) {
    c10d().allreduce(message)->wait();
  };
  all_take_part("all_gather", [&] {
    // Each rank fills its row; the sum over ranks then is what all have.
    const auto size = static_cast<int64_t>(text.size());
    const auto sizes = torch::zeros({world_size()}, torch::kLong);
    sizes[rank()].fill_(size);
    add_up({sizes});
    const auto texts =
        torch::zeros({world_size(), sizes.max().item<int64_t>()}, torch::kByte);
    if (!text.empty()) {
      std::memcpy(texts[rank()].mutable_data_ptr(), text.data(), text.size());
    }
    if (texts.numel() > 0) add_up({texts});
    for (int64_t i = 0; i < world_size(); ++i) {
      all.emplace_back(
          static_cast<const char*>(texts[i].const_data_ptr()),
          sizes[i].item<int64_t>());
    }
  });
  return all;
}

void ProcessGroup::barrier() {
  all_take_part("barrier", [&] { c10d().barrier()->wait(); });
}

void ProcessGroup::check_equal(
    const std::string& what,
    const std::string& value) {
  const std::vector<std::string> all = all_gather(value);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw DistributedError(fmt::format(
        "[ProcessGroup::check_equal] the {} of rank {} is {}, that of rank 0 "
        "{}; start the same program with the same arguments on all ranks.",
        what,
        rank,
        all[rank],
        all[0]));
  }
}

// The store may lie on a machine that cannot be reached any more, and then it
// never answers.
template <class F>
std::optional<std::string> ProcessGroup::ask_store(
    std::chrono::milliseconds patience,
    F f) noexcept {
  if (!connection_) return std::nullopt;
  const auto text = within(
      patience,
      [f = std::move(f), store = connection_->store] { return f(*store); });
  return text && !text->empty() ? text : std::nullopt;
}

void ProcessGroup::tell_error(const std::string& text) noexcept {
  has_told_ = true;
  ask_store(
      kTellPatience,
      [key = error_key(rank()),
       news = fmt::format("rank {} ended with: {}", rank(), text)
                  .substr(0, kMaxText)](::c10d::Store& store) {
        store.set(key, news);
        return news;
      });
}

std::optional<std::string> ProcessGroup::error_of_others() noexcept {
  return ask_store(
      std::max(kLeastAskPatience, options_.timeout / kPartOfTimeout),
      [me = rank(), size = world_size()](::c10d::Store& store) {
        const auto end = std::chrono::steady_clock::now() + kNewsPatience;
        int looks = 0;
        do {
          for (int64_t other = 0; other < size; ++other) {
            if (other != me && store.check({error_key(other)})) {
              return store.get_to_str(error_key(other));
            }
          }
          std::this_thread::sleep_for(milliseconds(20));
        } while (++looks < kLooks || std::chrono::steady_clock::now() < end);
        return std::string();
      });
}

}  // namespace tern

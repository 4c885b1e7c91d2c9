#include "tern/learner/distributed/process_group.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "tern/data/support/error_text.h"
#include "tern/data/support/mentions.h"
#include "tern/kernels/check.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/distributed/backends.h"
#include "tern/learner/forward_error.h"

namespace tern {

namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxText = 16 << 20;
constexpr int64_t kMaxCall = 200;    // bytes of a call in an error message
constexpr int64_t kMaxNumbers = 30;  // sent together with a call
// Size of tensors that are sent together, as in torch.nn.parallel.
constexpr size_t kBroadcastBytes = 250 << 20;
// A rank that leaves with an error reports it before closing its connections,
// within kTellPatience even on a busy machine. The others look for the report
// kLooks times and for at least kNewsPatience; for each response of the store
// they wait a fraction of the group's timeout. The rank that hosts the store
// waits kReadPatience for the others to read the report.
constexpr milliseconds kTellPatience(2000), kNewsPatience(200),
    kLeastAskPatience(300), kReadPatience(5000);
constexpr int kLooks = 10, kPartOfTimeout = 20;

// Gloo writes to sockets whose peers may be dead. The signal would terminate
// this program before it could report that. Python ignores the signal too.
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
  options.waitWorkers = false;  // the group waits for all and names them
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

// Set if this rank has read an error or has reported one.
std::string knows_key(int64_t rank) {
  return fmt::format("knows/{}", rank);
}

}  // namespace

struct ProcessGroup::Connection {
  c10::intrusive_ptr<::c10d::Store> store;
  // Null after `leave`. The store is kept, because the others read rank 0's
  // store.
  c10::intrusive_ptr<::c10d::ProcessGroup> group;
  // A separate group, because Gloo would terminate the program if one rank sent
  // gradients while another called a function of this class over the same
  // group.
  c10::intrusive_ptr<::c10d::ProcessGroup> gradients;
};

namespace {

c10::intrusive_ptr<::c10d::ProcessGroup> make_cpu_group(
    Member me,
    const std::string& name,
    const std::string& master_address) {
  me.store = c10::make_intrusive<::c10d::PrefixStore>(name, me.store);
  auto group = c10::make_intrusive<::c10d::ProcessGroup>(
      me.store,
      me.rank,
      me.world_size);
  constexpr auto kGloo = ::c10d::ProcessGroup::BackendType::GLOO;
  group->setBackend(torch::kCPU, kGloo, make_gloo_group(me, master_address));
  group->setDefaultBackend(kGloo);
  return group;
}

// "Float [3,4]"; "2 tensors: Float [3,4], Long []".
std::string kind_of(const Tensors& tensors) {
  std::vector<std::string> each;
  each.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
    each.push_back(fmt::format(
        "{} [{}]",
        c10::toString(tensor.scalar_type()),
        fmt::join(tensor.sizes(), ",")));
  }
  const std::string joined = fmt::to_string(fmt::join(each, ", "));
  return each.size() == 1 ? joined
                          : fmt::format("{} tensors: {}", each.size(), joined);
}

// Returns the description that ranks compare before a call; empty for CUDA
// tensors. Mismatched NCCL calls time out anyway, and a comparison would make
// the CPU wait for all ranks each time.
std::string compared_call(const Tensors& tensors) {
  const bool is_on_cpu = std::ranges::all_of(
      tensors,
      [](const torch::Tensor& tensor) { return tensor.is_cpu(); });
  return is_on_cpu ? kind_of(tensors) : std::string();
}

}  // namespace

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
      "start at most one process per CUDA device, or set DataBunch::device to "
      "the CPU");
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
    const std::string& address = environment_.master_address;
    const auto group = make_cpu_group(me, "calls", address);
    auto gradients = group;
    if (options.device.is_cpu()) {
      gradients = make_cpu_group(me, "gradients", address);
    } else {
      const c10::DeviceGuard on_device(options.device);
      try {
        group->setBackend(
            torch::kCUDA,
            ::c10d::ProcessGroup::BackendType::NCCL,
            make_nccl_group(me));
      } catch (...) {
        group->abort();
        throw;
      }
    }
    connection_ = std::make_unique<Connection>(
        Connection{me.store, group, std::move(gradients)});
  } catch (const std::exception& error) {
    throw DistributedError(fmt::format(
        "[ProcessGroup::connect] rank {} of {} could not connect to the other "
        "ranks at {}:{} within {} ms: {} Check that all {} processes are "
        "running, that the port is free and that the address is reachable.",
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
  const auto has = [&](const char* words) {
    return reason.find(words) != std::string::npos;
  };
  return has("[gloo]") || (has("/gloo/") && has(".cc:")) || has("NCCL");
}

ProcessGroup::~ProcessGroup() {
  try {
    connection_.reset();
  } catch (...) {  // NOLINT: it cannot be reported
  }
}

void ProcessGroup::leave() noexcept {
  // Without abort, an NCCL group would wait for data that a lost rank no longer
  // sends.
  if (!connection_ || !connection_->group) return;
  try {
    for (auto* const group : {&connection_->gradients, &connection_->group}) {
      (*group)->abort();
      group->reset();
    }
  } catch (...) {  // NOLINT: it cannot be reported
  }
  const bool holds_store = rank() == 0 && !environment_.has_agent_store;
  if (holds_store && others_may_read_) wait_for_readers();
}

// Otherwise the process, and its store, may end before the others have read the
// reason.
void ProcessGroup::wait_for_readers() noexcept {
  ask_store(kReadPatience, [size = world_size()](::c10d::Store& store) {
    std::vector<std::string> all_know;
    for (int64_t rank = 1; rank < size; ++rank) {
      all_know.push_back(knows_key(rank));
    }
    const auto end = std::chrono::steady_clock::now() + kReadPatience;
    while (!store.check(all_know) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(20));
    }
    return std::string();
  });
}

ProcessGroup::Connection& ProcessGroup::connection() {
  if (!connection_ || !connection_->group) {
    throw DistributedError(
        "[ProcessGroup] this rank disconnected after an error; restart the "
        "program.");
  }
  return *connection_;
}

::c10d::ProcessGroup& ProcessGroup::gradients() {
  return *connection().gradients;
}

// Gloo terminates the program if ranks send messages of different sizes.
// Therefore each call begins with a message of fixed size that identifies the
// call. It has room for a few numbers, so a small all_reduce needs no further
// message.
void ProcessGroup::begin_call(
    const std::string& call,
    std::span<double> numbers) {
  if (world_size() == 1) return;
  const auto sum = [this](const torch::Tensor& tensor) {
    Tensors message = {tensor};
    connection().group->allreduce(message)->wait();
  };
  // 20 bits, so that the sums over ranks are exact. If all ranks have the same
  // number, the sum of the squares equals the squared sum divided by the number
  // of ranks; otherwise it is larger.
  const auto code =
      static_cast<double>(std::hash<std::string>()(call) % (1 << 20));
  const auto message = torch::zeros({2 + kMaxNumbers}, torch::kDouble);
  auto* const values = message.mutable_data_ptr<double>();
  values[0] = code;
  values[1] = code * code;
  std::ranges::copy(numbers, values + 2);
  sum(message);
  std::copy_n(values + 2, numbers.size(), numbers.begin());
  const auto ranks = static_cast<double>(world_size());
  if (ranks * values[1] == values[0] * values[0]) return;
  const auto calls = torch::zeros({world_size(), kMaxCall}, torch::kByte);
  const std::string own = call.substr(0, kMaxCall);
  std::memcpy(calls[rank()].mutable_data_ptr(), own.data(), own.size());
  sum(calls);
  const auto call_of = [&](int64_t rank) {
    const auto* const text =
        static_cast<const char*>(calls[rank].const_data_ptr());
    return std::string(text, ::strnlen(text, kMaxCall));
  };
  int64_t other = 1;
  while (other + 1 < world_size() && call_of(other) == call_of(0)) ++other;
  throw DistributedError(fmt::format(
      "[ProcessGroup] rank 0 calls {}, but rank {} calls {}; expected the same "
      "calls in the same order on all ranks. Look for work that only one rank "
      "does: a callback that trains, saves or all-reduces on a condition, or a "
      "different program.",
      call_of(0),
      other,
      call_of(other)));
}

template <class F>
void ProcessGroup::all_take_part(
    const char* what,
    const std::string& call,
    const F& f,
    std::span<double> numbers) {
  TORCH_CHECK(
      !is_forward_repeated(),
      "[ProcessGroup] the other ranks do not repeat this forward pass.");
  std::string reason;
  try {
    if (!call.empty()) begin_call(fmt::format("{} of {}", what, call), numbers);
    f();
    return;
  } catch (const DistributedError&) {
    throw;
  } catch (const std::exception& error) {
    reason = message_of(error);
  }
  const auto told = error_of_others();
  if (!told && !is_about_connections(reason)) tell_error(reason);
  throw DistributedError(
      told ? fmt::format("[ProcessGroup::{}] {}", what, *told)
           : fmt::format(
                 "[ProcessGroup::{}] rank {} of {} lost its connection to the "
                 "other ranks; one of them exited, or did not respond within "
                 "{} ms: {}",
                 what,
                 rank(),
                 world_size(),
                 options_.timeout.count(),
                 reason));
}

void ProcessGroup::broadcast(const Tensors& tensors, int64_t root) {
  if (tensors.empty()) return;
  const torch::NoGradGuard no_grad;
  std::string call = compared_call(tensors);
  if (!call.empty()) call += fmt::format(" of rank {}", root);
  all_take_part("broadcast", call, [&] {
    ::c10d::broadcast_coalesced(
        connection().group,
        tensors,
        kBroadcastBytes,
        static_cast<int>(root));
  });
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor) {
  Tensors message = {tensor};
  const bool is_small = tensor.is_cpu() && tensor.is_contiguous() &&
                        tensor.scalar_type() == torch::kDouble &&
                        tensor.numel() <= kMaxNumbers;
  std::span<double> numbers;
  if (is_small) {
    numbers = {
        tensor.mutable_data_ptr<double>(),
        static_cast<size_t>(tensor.numel())};
  }
  all_take_part(
      "all_reduce",
      compared_call(message),
      [&] {
        if (is_small && world_size() > 1) return;
        connection().group->allreduce(message)->wait();
      },
      numbers);
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text) {
  return all_gather(text, "a string");
}

std::vector<std::string> ProcessGroup::all_gather(
    const std::string& text,
    const std::string& what) {
  TERN_CHECK_VALUE(
      text.size() <= kMaxText,
      "[ProcessGroup::all_gather] the string has {} bytes; expected at most "
      "{}.",
      text.size(),
      kMaxText);
  std::vector<std::string> all;
  const auto add_up = [this](Tensors message) {
    connection().group->allreduce(message)->wait();
  };
  all_take_part("all_gather", what, [&] {
    // Each rank fills its own row; the sum over ranks contains all rows.
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
  all_take_part("barrier", "all", [&] {
    connection().group->barrier()->wait();
  });
}

void ProcessGroup::check_equal(
    const std::string& what,
    const std::string& value) {
  check_equal(
      what,
      value,
      "start the same program with the same arguments on all ranks");
}

void ProcessGroup::check_equal(
    const std::string& what,
    const std::string& value,
    const std::string& advice) {
  const std::vector<std::string> all = all_gather(value, "the " + what);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw DistributedError(fmt::format(
        "[ProcessGroup::check_equal] the {} of rank {} is {}, but rank 0 has "
        "{}; {}.",
        what,
        rank,
        all[rank],
        all[0],
        advice));
  }
}

// The store may be on a machine that is no longer reachable and never responds.
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
  others_may_read_ = true;
  const std::string name = fmt::format("rank {}", rank());
  const std::string who = mentions(text, name) ? "another rank" : name;
  ask_store(
      kTellPatience,
      [me = rank(),
       news = fmt::format("{} ended with: {}", who, text).substr(0, kMaxText)](
          ::c10d::Store& store) {
        store.set(error_key(me), news);
        store.set(knows_key(me), "yes");
        return news;
      });
}

std::optional<std::string> ProcessGroup::error_of_others() noexcept {
  auto text = ask_store(
      std::max(kLeastAskPatience, options_.timeout / kPartOfTimeout),
      [me = rank(), size = world_size()](::c10d::Store& store) {
        const auto end = std::chrono::steady_clock::now() + kNewsPatience;
        int looks = 0;
        do {
          for (int64_t other = 0; other < size; ++other) {
            if (other != me && store.check({error_key(other)})) {
              std::string text = store.get_to_str(error_key(other));
              store.set(knows_key(me), "yes");
              return text;
            }
          }
          std::this_thread::sleep_for(milliseconds(20));
        } while (++looks < kLooks || std::chrono::steady_clock::now() < end);
        return std::string();
      });
  if (text) others_may_read_ = true;
  return text;
}

}  // namespace tern

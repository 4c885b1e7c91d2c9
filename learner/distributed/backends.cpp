#include "tern/learner/distributed/backends.h"

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/load_cuda.h"

namespace tern {

namespace {

using Gloo = ::c10d::ProcessGroupGloo;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using std::chrono::milliseconds;

// Tags of operations are of a different kind.
constexpr int kNewsTag = 1;
// The message contains the number of the lost rank, or one of these: kNobody if
// the sender leaves because all work is done, kSomebody if it does not know
// which rank is lost.
constexpr int64_t kNobody = -1, kSomebody = -2;
constexpr milliseconds kForever = std::chrono::hours(24 * 365);
// Data that a rank sent before it exited may still complete an operation.
constexpr milliseconds kGrace(1000);

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" ||
         address.starts_with("127.");
}

// Ranks on one machine listen only on that machine, because the connections
// have neither passwords nor encryption.
std::shared_ptr<::gloo::transport::Device> make_device(
    const std::string& master_address) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface && *interface) return Gloo::createDeviceForInterface(interface);
  if (is_loopback(master_address)) {
    return Gloo::createDeviceForHostname("127.0.0.1");
  }
  return Gloo::createDefaultDevice();
}

// Running operations. Each is ended once, either by Gloo or by `fail`.
class Operations : public std::enable_shared_from_this<Operations> {
 public:
  FuturePtr follow(const FuturePtr& theirs) {
    auto mine = c10::make_intrusive<c10::ivalue::Future>(theirs->elementType());
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = begun_++;
      under_way_.emplace(number, mine);
    }
    theirs->addCallback(
        [self = shared_from_this(), number](c10::ivalue::Future& done) {
          const FuturePtr mine = self->take(number);
          if (!mine) return;
          if (done.hasError()) {
            mine->setError(done.exception_ptr());
          } else {
            mine->markCompleted(done.value());
          }
        });
    return mine;
  }

  uint64_t begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

  /// Ends the first `count` operations with an error, unless they have already
  /// ended.
  void fail(uint64_t count, const std::string& reason) {
    std::vector<FuturePtr> failed;
    {
      const std::lock_guard lock(mutex_);
      const auto end = under_way_.lower_bound(count);
      for (auto i = under_way_.begin(); i != end; ++i) {
        failed.push_back(i->second);
      }
      under_way_.erase(under_way_.begin(), end);
    }
    for (const FuturePtr& future : failed) {
      future->setError(std::make_exception_ptr(std::runtime_error(reason)));
    }
  }

 private:
  FuturePtr take(uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto node = under_way_.extract(number);
    return node ? node.mapped() : nullptr;
  }

  mutable std::mutex mutex_;
  uint64_t begun_ = 0;
  std::map<uint64_t, FuturePtr> under_way_;
};

// Needed because the Work of Work::create_from_future does not throw in wait().
class FutureWork final : public ::c10d::Work {
 public:
  explicit FutureWork(FuturePtr future) : future_(std::move(future)) {}

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->hasValue(); }
  std::exception_ptr exception() const override {
    return future_->exception_ptr();
  }
  bool wait(milliseconds /*timeout: the operation has the group's*/) override {
    future_->waitAndThrow();
    return true;
  }
  Tensors result() override { return future_->value().toTensorVector(); }
  FuturePtr getFuture() override { return future_; }

 private:
  FuturePtr future_;
};

// Each rank always waits for a message from the next rank (the last rank, from
// the first). When a process exits, the kernel closes its connections. Gloo
// then ends the wait, and this rank sends the number of the lost rank to the
// previous rank. A process that is only suspended keeps its connections.
class GlooGroup final : public ::c10d::Backend {
 public:
  explicit GlooGroup(c10::intrusive_ptr<Gloo> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {
    if (size_ == 1) return;
    Tensors news = {news_};
    receive_ = gloo_->recv(news, next(), kNewsTag);
    listener_ = std::thread([this] { listen(); });
  }

  ~GlooGroup() override {
    leave(kNobody);
    if (listener_.joinable()) listener_.join();
    operations_->fail(
        operations_->begun(),
        "[gloo] this rank has left the group.");
    // Gloo joins its threads in its destructor.
    within(
        kGrace,
        [gloo = std::move(gloo_),
         receive = std::move(receive_),
         send = std::move(send_)]() mutable {
          gloo.reset();  // first: it reads for the others until it is destroyed
          receive.reset();
          send.reset();
          return true;
        });
  }

  void abort() override {
    leave(rank_);
    operations_->fail(
        operations_->begun(),
        "[gloo] this rank has left the group.");
  }

  const std::string getBackendName() const override {
    return gloo_->getBackendName();
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return gloo_->getBackendOptions();
  }

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options)
      override {
    return follow(gloo_->broadcast(tensors, options));
  }
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options)
      override {
    return follow(gloo_->allreduce(tensors, options));
  }
  WorkPtr barrier(const ::c10d::BarrierOptions& options) override {
    return follow(gloo_->barrier(options));
  }

 private:
  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }

  WorkPtr follow(const WorkPtr& work) {
    return c10::make_intrusive<FutureWork>(
        operations_->follow(work->getFuture()));
  }

  void listen() {
    int64_t gone = next();
    std::string how;
    try {
      if (!receive_->wait(kForever)) return;  // this rank leaves
      gone = news_.item<int64_t>();
      if (gone == kNobody) return;
    } catch (const std::exception& error) {
      how = fmt::format(": {}", message_of(error));
      // Gloo also ends this wait, and closes all connections, if another wait
      // timed out.
      if (how.find("onnection closed") == std::string::npos &&
          how.find("onnection reset") == std::string::npos) {
        gone = kSomebody;
      }
    }
    tell(gone);
    const std::string reason = gone == kSomebody
                                   ? fmt::format(
                                         "[gloo] the connection to the other "
                                         "ranks is lost{}",
                                         how)
                                   : fmt::format(
                                         "[gloo] the connection to rank {} is "
                                         "lost{}",
                                         gone,
                                         how);
    bool has_left = false;
    while (!has_left) {
      const uint64_t count = operations_->begun();
      {
        std::unique_lock lock(mutex_);
        has_left = leaves_.wait_for(lock, kGrace, [&] { return has_left_; });
      }
      operations_->fail(count, reason);
    }
  }

  void leave(int64_t news) {
    if (size_ == 1) return;
    tell(news);
    {
      const std::lock_guard lock(mutex_);
      has_left_ = true;
    }
    leaves_.notify_all();
    receive_->abort();
  }

  // Sends the message once, without waiting, because the receiver may be lost
  // too.
  void tell(int64_t news) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (std::exchange(has_sent_, true)) return;
      Tensors message = {torch::tensor({news}, torch::kLong)};
      send_ = gloo_->send(message, previous(), kNewsTag);
    } catch (...) {  // NOLINT: no rank is left to tell
    }
  }

  c10::intrusive_ptr<Gloo> gloo_;
  std::shared_ptr<Operations> operations_ = std::make_shared<Operations>();
  torch::Tensor news_ = torch::empty({1}, torch::kLong);
  WorkPtr receive_, send_;
  std::mutex mutex_;
  std::condition_variable leaves_;
  bool has_sent_ = false, has_left_ = false;
  std::thread listener_;
};

}  // namespace

c10::intrusive_ptr<::c10d::Backend> make_gloo_group(
    const Member& member,
    const std::string& master_address) {
  const auto options = Gloo::Options::create(member.timeout);
  options->devices = {make_device(master_address)};
  options->threads = 2;
  return c10::make_intrusive<GlooGroup>(c10::make_intrusive<Gloo>(
      member.store,
      member.rank,
      member.world_size,
      options));
}

c10::intrusive_ptr<::c10d::Backend> make_nccl_group(const Member& member) {
  static const auto make = reinterpret_cast<MakeNcclGroup>(open_module(
      "libtern_nccl.so",
      "TERN_NCCL_LIBRARY",
      "training on several GPUs",
      kMakeNcclGroup));
  c10::intrusive_ptr<::c10d::Backend> group;
  make(member, group);
  return group;
}

}  // namespace tern

#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/kernels/load_cuda.h"
#include "tern/tests/learner/combos/checks.h"

/// Runs cases in a separate process, so that a crash or a hang is reported like
/// any other failure.
namespace tern::combos {

struct Outcome {
  enum class Kind { passed, refused, failed };
  Kind kind = Kind::passed;
  std::string text = {};
};

/// A case: a seed, and which `simplifications` are applied to its
/// configuration.
struct Case {
  uint64_t seed = 0;
  std::vector<size_t> simpler = {};

  Configuration configuration() const {
    Configuration c = draw_configuration(seed);
    for (const size_t at : simpler) simplifications().at(at)(c);
    return c;
  }
};

inline Outcome run_here(const Case& one) {
  try {
    run_check(one.configuration());
    return {};
  } catch (const Refused& error) {
    return {Outcome::Kind::refused, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::Kind::failed, message_of(error)};
  }
}

class Worker {
 public:
  ~Worker() { stop(); }

  Outcome run(const Case& one) {
    if (child_ <= 0) start();
    std::string line = fmt::format("{}", one.seed);
    for (const size_t at : one.simpler) line += fmt::format(" {}", at);
    write_line(to_, line);
    const std::optional<std::string> response = read_response();
    if (response) {
      const auto kind = static_cast<Outcome::Kind>(response->at(0) - '0');
      return {kind, response->substr(1)};
    }
    int status = 0;
    ::kill(child_, SIGKILL);  // if it hangs
    ::waitpid(std::exchange(child_, 0), &status, 0);
    ::close(to_);
    ::close(from_);
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return {
        Outcome::Kind::failed,
        signal == SIGKILL
            ? "the case hangs"
            : fmt::format("the case crashes: {}", ::strsignal(signal))};
  }

 private:
  static constexpr int kPatience = 60'000;  // milliseconds

  static void write_line(int to, std::string text) {
    for (char& c : text) c = c == '\n' ? '\r' : c;
    text += '\n';
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(to, text.data() + done, text.size() - done);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }

  void start() {
    int to[2], from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) std::abort();
    std::signal(SIGPIPE, SIG_IGN);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(to[1]);
      ::close(from[0]);
      work(to[0], from[1]);
      ::_exit(0);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
    pending_.clear();
  }

  static void work(int from, int to) {
    at::set_num_threads(1);
    // The cases write many small files; memory is faster than a disk.
    const char* const memory = "/dev/shm";
    if (::access(memory, W_OK) == 0) ::setenv("TMPDIR", memory, 1);
    if (device().is_cuda() && !load_cuda()) {
      fmt::print(stderr, "TERN_COMBOS_DEVICE is cuda, but there is no GPU.\n");
      ::_exit(1);
    }
    FILE* const input = ::fdopen(from, "r");
    char line[4096];
    while (std::fgets(line, sizeof(line), input)) {
      std::istringstream words(line);
      Case one;
      words >> one.seed;
      for (size_t at = 0; words >> at;) one.simpler.push_back(at);
      const Outcome outcome = run_here(one);
      write_line(
          to,
          fmt::format("{}{}", static_cast<int>(outcome.kind), outcome.text));
    }
  }

  // Returns nothing if the child dies or takes too long.
  std::optional<std::string> read_response() {
    while (true) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        for (char& c : line) c = c == '\r' ? '\n' : c;
        return line;
      }
      pollfd ready = {.fd = from_, .events = POLLIN, .revents = 0};
      const int count = ::poll(&ready, 1, kPatience);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return std::nullopt;
      char buffer[4096];
      const ssize_t n = ::read(from_, buffer, sizeof(buffer));
      if (n <= 0) return std::nullopt;
      pending_.append(buffer, static_cast<size_t>(n));
    }
  }

  void stop() {
    if (child_ <= 0) return;
    ::close(to_);
    ::waitpid(child_, nullptr, 0);
    ::close(from_);
  }

  pid_t child_ = 0;
  int to_ = -1, from_ = -1;
  std::string pending_;
};

/// Applies the simplifications with which the case still fails in the same way;
/// a crash must remain a crash.
inline Case simplest(Worker& worker, Case one, const Outcome& outcome) {
  const auto way = [](const std::string& text) {
    return text.substr(0, text.find_first_of(":0123456789/"));
  };
  for (size_t at = 0; at < simplifications().size(); ++at) {
    Case simpler = one;
    simpler.simpler.push_back(at);
    if (describe(simpler.configuration()) == describe(one.configuration())) {
      continue;
    }
    const Outcome same = worker.run(simpler);
    if (same.kind == Outcome::Kind::failed &&
        way(same.text) == way(outcome.text)) {
      one = simpler;
    }
  }
  return one;
}

}  // namespace tern::combos

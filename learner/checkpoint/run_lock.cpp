#include "tern/learner/checkpoint/run_lock.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/learner/checkpoint/checkpoint.h"

namespace tern {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string holder(const FileHandle& file, const std::filesystem::path& path) {
  std::array<uint8_t, 512> bytes{};
  const size_t size = read_up_to(file, bytes, path);
  const std::string text(bytes.begin(), bytes.begin() + size);
  return text.empty() ? "another program" : text.substr(0, text.find('\n'));
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  make_folders(folder);
  const std::filesystem::path path = folder / ".lock";
  file_ = open_file(path, O_RDWR | O_CREAT);
  if (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      throw IoError(path.string(), "lock this file", errno);
    }
    throw CheckpointError(
        folder.string(),
        fmt::format(
            "{} writes checkpoints here already; wait for it, or give this "
            "training a folder of its own",
            holder(file_, path)));
  }
  if (::ftruncate(file_.fd(), 0) != 0) {
    throw IoError(path.string(), "write this file", errno);
  }
  const std::string text =
      fmt::format("process {} on {}\n", ::getpid(), host_name());
  write_all(
      file_,
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()},
      path);
}

}  // namespace tern

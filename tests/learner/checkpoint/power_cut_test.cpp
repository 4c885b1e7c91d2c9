// A power cut loses whatever was not synced: bytes of files, names in folders.
// A model of the disk records the C library's calls during a save. After each
// call it creates images of what a power cut could leave; every image must
// contain the last save that returned.

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <fcntl.h>
#include <map>
#include <random>
#include <stdio.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny_checkpoint.h"

namespace {

namespace fs = std::filesystem;

// A file or a folder. Changes of names are atomic and keep their order, as in a
// journal; bytes are written in any order.
struct Node {
  using Names = std::map<std::string, int>;
  bool is_folder = false;
  std::string bytes = {}, synced_bytes = {};
  Names synced_names = {};
  std::vector<Names> changes = {};  // names, since the last sync

  const Names& names() const {
    return changes.empty() ? synced_names : changes.back();
  }
};

class Disk {
 public:
  explicit Disk(fs::path root) : root_(std::move(root)) {
    nodes_.push_back({.is_folder = true});
  }

  // ---- What the program does ----

  void opened(int fd, int folder_fd, const char* path, bool creates) {
    const Place place = find(folder_fd, path);
    if (place.node < 0 && place.folder >= 0 && creates) {
      add(place, {});
      open_[fd] = static_cast<int>(nodes_.size()) - 1;
    } else if (place.node >= 0) {
      open_[fd] = place.node;
    }
  }
  void closed(int fd) { open_.erase(fd); }
  void made_folder(const char* path) {
    add(find(AT_FDCWD, path), {.is_folder = true});
  }
  void wrote(int fd, const char* data, size_t size) {
    if (open_.count(fd) != 0) node(fd).bytes.append(data, size);
  }
  void synced(int fd) {
    if (open_.count(fd) == 0) return;
    Node& at = node(fd);
    at.synced_bytes = at.bytes;
    at.synced_names = at.names();
    at.changes.clear();
  }
  void renamed(const char* from, const char* to) {
    const Place old = find(AT_FDCWD, from), next = find(AT_FDCWD, to);
    if (old.node < 0 || next.folder < 0) return;
    Node::Names names = nodes_[static_cast<size_t>(old.folder)].names();
    names.erase(old.name);
    names[next.name] = old.node;  // Tern renames within a folder
    change(next.folder, std::move(names));
  }
  void removed(int folder_fd, const char* path) {
    const Place place = find(folder_fd, path);
    if (place.node < 0) return;
    Node::Names names = nodes_[static_cast<size_t>(place.folder)].names();
    names.erase(place.name);
    change(place.folder, std::move(names));
  }

  // ---- What a power cut leaves ----

  // The state without a power cut.
  void write_whole(const fs::path& to) const { write(0, to, nullptr); }
  // A possible state after a power cut at this moment.
  void write_cut(const fs::path& to, std::mt19937& random) const {
    write(0, to, &random);
  }

 private:
  struct Place {
    int folder = -1, node = -1;  // -1: not on this disk, or missing
    std::string name = {};
  };

  Node& node(int fd) { return nodes_[static_cast<size_t>(open_.at(fd))]; }

  Place find(int folder_fd, const char* path) const {
    fs::path rest = path;
    Place place{.node = 0};
    if (rest.is_absolute() || open_.count(folder_fd) == 0) {
      if (!rest.string().starts_with(root_.string())) return {};
      rest = rest.lexically_relative(root_);
    } else {
      place.node = open_.at(folder_fd);
    }
    for (const fs::path& part : rest) {
      if (part == "." || part.empty()) continue;
      if (place.node < 0) return {};
      const Node::Names& names =
          nodes_[static_cast<size_t>(place.node)].names();
      const auto at = names.find(part.string());
      place = {place.node, at == names.end() ? -1 : at->second, part.string()};
    }
    return place;
  }

  void add(const Place& place, Node added) {
    if (place.folder < 0) return;
    nodes_.push_back(std::move(added));
    Node::Names names = nodes_[static_cast<size_t>(place.folder)].names();
    names[place.name] = static_cast<int>(nodes_.size()) - 1;
    change(place.folder, std::move(names));
  }

  void change(int folder, Node::Names names) {
    nodes_[static_cast<size_t>(folder)].changes.push_back(std::move(names));
  }

  void write(int index, const fs::path& to, std::mt19937* random) const {
    const Node& node = nodes_[static_cast<size_t>(index)];
    if (!node.is_folder) {
      std::string bytes = node.bytes;
      if (random != nullptr && node.synced_bytes != bytes) {
        const auto kept = (*random)() % (bytes.size() + 1);
        // Lost, truncated, or zeros in place of data that was never written.
        if ((*random)() % 2 != 0)
          bytes.resize(kept);
        else
          std::fill(bytes.begin() + static_cast<long>(kept), bytes.end(), 0);
      }
      tern::write_file(to, bytes);
      return;
    }
    fs::create_directories(to);
    const size_t kept = random == nullptr
                            ? node.changes.size()
                            : (*random)() % (node.changes.size() + 1);
    const Node::Names& names =
        kept == 0 ? node.synced_names : node.changes[kept - 1];
    for (const auto& [name, child] : names) write(child, to / name, random);
  }

  fs::path root_;
  std::vector<Node> nodes_;
  std::map<int, int> open_;
};

Disk* g_disk = nullptr;
void (*g_after_call)() = nullptr;

// Reports a call to the disk, then hides the calls of the reaction to it.
template <class Tell>
void tell(const Tell& tell_disk) {
  Disk* const disk = std::exchange(g_disk, nullptr);
  if (disk == nullptr) return;
  tell_disk(*disk);
  if (g_after_call != nullptr) {
    g_disk = disk;
    g_after_call();
  }
  g_disk = disk;
}

int open_at(int folder, const char* path, int flags, int mode) {
  const int fd =
      static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
  if (fd >= 0) {
    tell([&](Disk& d) { d.opened(fd, folder, path, (flags & O_CREAT) != 0); });
  }
  return fd;
}

int unlink_at(int folder, const char* path, int flags) {
  const int result =
      static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
  if (result == 0) tell([&](Disk& d) { d.removed(folder, path); });
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  return open_at(folder, path, flags, 0644);
}
int close(int fd) {
  tell([&](Disk& d) { d.closed(fd); });
  return static_cast<int>(::syscall(SYS_close, fd));
}
ssize_t write(int fd, const void* data, size_t size) {
  const ssize_t done = ::syscall(SYS_write, fd, data, size);
  if (done > 0) {
    tell([&](Disk& d) {
      d.wrote(fd, static_cast<const char*>(data), static_cast<size_t>(done));
    });
  }
  return done;
}
int fsync(int fd) {
  tell([&](Disk& d) { d.synced(fd); });
  return 0;
}
int rename(const char* from, const char* to) noexcept {
  const int result = static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  if (result == 0) tell([&](Disk& d) { d.renamed(from, to); });
  return result;
}
int mkdir(const char* path, mode_t mode) noexcept {
  const int result =
      static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  if (result == 0) tell([&](Disk& d) { d.made_folder(path); });
  return result;
}
int unlink(const char* path) noexcept {
  return unlink_at(AT_FDCWD, path, 0);
}
int rmdir(const char* path) noexcept {
  return unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return unlink_at(folder, path, flags);
}
int remove(const char* path) noexcept {
  const int result = unlink_at(AT_FDCWD, path, 0);
  return result == 0 || errno != EISDIR
             ? result
             : unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}

}  // extern "C"

namespace tern::power_cut_test {
namespace {

using testing_support::tiny_checkpoint;

// Counts the images that lack a save that had already returned.
struct Cuts {
  std::mt19937 random{20};
  int64_t acknowledged = 0;
  int images = 0, lost = 0;

  void cut(const Disk& disk) {
    for (int i = 0; i < 2; ++i, ++images) {
      const TempFolder image;
      disk.write_cut(image / "run", random);
      std::vector<std::string> problems;
      try {
        const Checkpoint left = read_checkpoint(image / "run", problems);
        lost += left.step < acknowledged;
        testing_support::expect_equal(left, tiny_checkpoint(left.step));
      } catch (const CheckpointError&) {
        lost += acknowledged > 0;
      }
    }
  }
};

Cuts* g_cuts = nullptr;

// Six saves; each removes the checkpoint before the previous one.
Cuts saves(bool durable) {
  const TempFolder temp;
  Disk disk(temp / "run");
  fs::create_directories(temp / "run");
  Cuts cuts;
  g_cuts = &cuts;
  g_disk = &disk;
  g_after_call = [] {
    Disk* const disk = std::exchange(g_disk, nullptr);
    g_cuts->cut(*disk);
    g_disk = disk;
  };
  for (int64_t step = 1; step <= 6; ++step) {
    write_checkpoint(
        temp / "run",
        tiny_checkpoint(step),
        {.keep = 1, .durable = durable});
    cuts.acknowledged = step;
  }
  g_disk = nullptr;
  g_after_call = nullptr;

  // The model matches the real disk.
  disk.write_whole(temp / "model");
  std::map<std::string, std::vector<uint8_t>> real, modelled;
  for (const auto& [folder, files] :
       {std::pair("run", &real), std::pair("model", &modelled)}) {
    for (const auto& entry : fs::recursive_directory_iterator(temp / folder)) {
      const std::string name =
          entry.path().lexically_relative(temp / folder).string();
      (*files)[name] = entry.is_directory() ? std::vector<uint8_t>()
                                            : read_file(entry.path());
    }
  }
  EXPECT_EQ(real, modelled);
  return cuts;
}

TEST(PowerCut, LosesNoDurableSaveThatReturned) {
  const Cuts cuts = saves(/*durable=*/true);
  EXPECT_GE(cuts.images, 500);
  EXPECT_EQ(cuts.lost, 0);
}

// Otherwise the test above would prove nothing.
TEST(PowerCut, LosesSavesThatWereNotSynced) {
  EXPECT_GT(saves(/*durable=*/false).lost, 0);
}

}  // namespace
}  // namespace tern::power_cut_test

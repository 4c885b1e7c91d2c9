// The files of a checkpoint. Nothing is ever changed in place: a folder is
// filled under a name that nobody reads and renamed when all of it is on the
// disk.

#include "tern/learner/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <functional>
#include <future>
#include <optional>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/manifest.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/weights/weights.h"

namespace fs = std::filesystem;

namespace tern {

namespace {

constexpr const char* kManifest = "MANIFEST";
constexpr const char* kLatest = "latest";
constexpr std::string_view kPrefix = "step_";
constexpr const char* kUnfinished = "unfinished";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kTraining = "training.safetensors";

// The step of "step_1200"; nothing for another name.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] =
      std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || at != end || step < 0) return std::nullopt;
  return step;
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  return parse_manifest(read_file(file, 1 << 20), file);
}

// Everything that the manifest promises is there, byte for byte.
Manifest verify(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  for (const Manifest::File& file : manifest.files) {
    const fs::path path = folder / file.name;
    const int64_t size = file_size(open_regular_file(path), path);
    if (size != file.size) {
      throw DataError(
          path.string(),
          fmt::format(
              "the file has {} bytes where the manifest says {}: it was cut "
              "off or changed",
              size,
              file.size));
    }
    if (sha256_file(path) != file.sha256) {
      throw DataError(
          path.string(),
          "the file's SHA-256 is not the manifest's: it was damaged or "
          "changed");
    }
  }
  for (const char* name : {kModel, kOptimizer, kTraining}) {
    if (std::ranges::count(manifest.files, name, &Manifest::File::name) == 0) {
      throw DataError(
          (folder / kManifest).string(),
          fmt::format("the manifest does not name {}", name));
    }
  }
  return manifest;
}

Checkpoint read_step(const fs::path& folder) {
  const Manifest manifest = verify(folder);
  return {
      .run = manifest.run,
      .step = manifest.step,
      .model = load_weights(folder / kModel),
      .optimizer = load_weights(folder / kOptimizer),
      .training = load_weights(folder / kTraining),
      .settings = safetensors_metadata(folder / kTraining),
      .folder = folder};
}

void write_files(
    const fs::path& folder,
    const Checkpoint& checkpoint,
    bool durable) {
  struct Part {
    const char* name;
    SafetensorsImage image;
    std::future<std::string> sha256;
  };
  const auto part = [&](const char* name,
                        const StateDict& state,
                        const std::map<std::string, std::string>& metadata) {
    return Part{name, SafetensorsImage(state, metadata, folder / name), {}};
  };
  std::array<Part, 3> parts{
      part(kModel, checkpoint.model, {}),
      part(kOptimizer, checkpoint.optimizer, {}),
      part(kTraining, checkpoint.training, checkpoint.settings)};
  // Hashed while they are written. The default policy of std::async does it in
  // get() where no thread is to be had.
  for (Part& part : parts) {
    part.sha256 = std::async([&part] { return part.image.sha256(); });
  }
  for (const Part& part : parts) part.image.write(folder / part.name, durable);
  // The manifest is written last, and after it nothing can be missing.
  Manifest manifest{checkpoint.run, checkpoint.step, {}};
  for (Part& part : parts) {
    manifest.files.push_back({part.name, part.image.size(), part.sha256.get()});
  }
  AtomicFile file(folder / kManifest);
  file.write(to_text(manifest));
  file.commit(durable);
}

bool is_saved(const fs::path& folder, const Checkpoint& checkpoint) {
  std::error_code error;
  if (!fs::exists(folder, error)) return false;
  try {
    const Manifest manifest = verify(folder);
    return manifest.run == checkpoint.run && manifest.step == checkpoint.step;
  } catch (const DataError&) {
    return false;
  }
}

void move_to_name(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw IoError(from.string(), "rename it to " + to.string(), error.value());
  }
}

// A damaged checkpoint of the same step makes room without being lost: people
// may want to look at it.
void put_aside(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  for (int i = 1;; ++i) {
    const fs::path aside = folder.string() + fmt::format(".damaged-{}", i);
    if (!fs::exists(aside, error)) return move_to_name(folder, aside);
  }
}

void prune(const fs::path& folder, const Checkpoint& newest, int64_t keep) {
  if (keep <= 0) return;
  int64_t kept = 0;
  for (const fs::path& step : list_checkpoints(folder)) {
    // Later ones are of a continuation that was given up, others may be of
    // another run: neither is ours to remove.
    if (step_of(step) > newest.step) continue;
    if (++kept <= keep) continue;
    if (run_of_checkpoint(step) != newest.run) continue;
    // Without its manifest it is no checkpoint, however far removing gets.
    std::error_code error;
    fs::remove(step / kManifest, error);
    if (!error) fs::remove_all(step, error);
  }
}

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

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (step_of(at->path()) && fs::is_directory(at->path())) {
      found.push_back(at->path());
    }
  }
  std::ranges::sort(found, std::greater<>(), step_of);
  return found;
}

std::string run_of_checkpoint(const fs::path& step) {
  try {
    return read_manifest(step).run;
  } catch (const DataError&) {
    return "";
  }
}

void remove_unfinished_checkpoints(const fs::path& folder) {
  StagingFolder::remove_leftovers(folder / kUnfinished);
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifest, error) ||
         !list_checkpoints(folder).empty();
}

void write_checkpoint(
    const fs::path& folder,
    const Checkpoint& checkpoint,
    const WriteCheckpointOptions& options) {
  const fs::path target =
      folder / fmt::format("{}{}", kPrefix, checkpoint.step);
  if (!is_saved(target, checkpoint)) {
    const StagingFolder staging(folder / kUnfinished);
    write_files(staging.path(), checkpoint, options.durable);
    if (options.durable) sync_folder(staging.path());
    put_aside(target);
    move_to_name(staging.path(), target);
    if (options.durable) sync_folder(folder);
  }
  AtomicFile latest(folder / kLatest);
  latest.write(target.filename().string() + "\n");
  latest.commit(options.durable);
  prune(folder, checkpoint, options.keep);
}

Checkpoint read_checkpoint(
    const fs::path& folder,
    std::vector<std::string>& problems) {
  std::error_code error;
  if (fs::exists(folder / kManifest, error)) {
    try {
      return read_step(folder);
    } catch (const DataError& fault) {
      throw CheckpointError(
          "",
          fmt::format(
              "{}; the checkpoint cannot be used. Name the run's folder to "
              "take the newest whole one.",
              fault.what()));
    }
  }
  for (const fs::path& step : list_checkpoints(folder)) {
    try {
      return read_step(step);
    } catch (const DataError& fault) {
      problems.push_back(fault.what());
    }
  }
  throw CheckpointError(
      folder.string(),
      problems.empty()
          ? "there is no checkpoint in this folder; expected step_<n> folders "
            "as SaveCheckpoint writes them"
          : fmt::format(
                "none of its {} checkpoints is whole; the newest: {}",
                problems.size(),
                problems.front()));
}

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
  write_all(file_, as_bytes(text), path);
}

}  // namespace tern

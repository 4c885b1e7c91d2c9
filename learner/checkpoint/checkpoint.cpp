// The files of a checkpoint. Files are never changed in place: a folder is
// written under a temporary name and renamed once it is completely on the disk.

#include "tern/learner/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <functional>
#include <future>
#include <optional>
#include <string_view>
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
// A checkpoint that is being replaced by a new checkpoint of the same step. It
// is valid until the new checkpoint has the name.
constexpr std::string_view kBefore = ".before";
// Replaced or damaged checkpoints, with a number appended; not read
// automatically.
constexpr std::string_view kReplaced = ".replaced-";
constexpr std::string_view kDamaged = ".damaged-";

// "step_1200", "step_1200.before" or "step_1200.replaced-2".
struct StepName {
  int64_t step;
  std::string_view kind;  // empty, kBefore, kReplaced or kDamaged
  int64_t number = 0;     // for kReplaced and kDamaged
};

// Parses all of `text` as a nonnegative number.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || number < 0) return std::nullopt;
  return number;
}

// Unset for other names.
std::optional<StepName> parse_name(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(kPrefix.size());
  const size_t dot = std::min(rest.find('.'), rest.size());
  const std::optional<int64_t> step = number_in(rest.substr(0, dot));
  const std::string_view ending = rest.substr(dot);
  if (!step) return std::nullopt;
  if (ending.empty()) return StepName{*step, ""};
  if (ending == kBefore) return StepName{*step, kBefore};
  for (const std::string_view kind : {kReplaced, kDamaged}) {
    if (!ending.starts_with(kind)) continue;
    const auto number = number_in(ending.substr(kind.size()));
    if (number) return StepName{*step, kind, *number};
  }
  return std::nullopt;
}

fs::path step_folder(const fs::path& folder, int64_t step) {
  return folder / fmt::format("{}{}", kPrefix, step);
}

fs::path before_of(const fs::path& step) {
  return step.string() + std::string(kBefore);
}

// Returns all folders with such names.
std::vector<std::pair<StepName, fs::path>> named_folders(
    const fs::path& folder) {
  std::vector<std::pair<StepName, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const auto name = parse_name(at->path());
    if (name && fs::is_directory(at->path())) {
      found.emplace_back(*name, at->path());
    }
  }
  return found;
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  return parse_manifest(read_file(file, 1 << 20), file);
}

// Checks that all files in the manifest exist and match it byte for byte.
Manifest verify(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  for (const Manifest::File& file : manifest.files) {
    const fs::path path = folder / file.name;
    const int64_t size = file_size(open_regular_file(path), path);
    if (size != file.size) {
      throw DataError(
          path.string(),
          fmt::format(
              "the file has {} bytes, but the manifest lists {}: it was "
              "truncated or changed.",
              size,
              file.size));
    }
    if (sha256_file(path) != file.sha256) {
      throw DataError(
          path.string(),
          "the file's SHA-256 differs from the manifest: it was damaged or "
          "changed.");
    }
  }
  for (const char* name : {kModel, kOptimizer, kTraining}) {
    if (std::ranges::count(manifest.files, name, &Manifest::File::name) == 0) {
      throw DataError(
          (folder / kManifest).string(),
          fmt::format("the manifest does not list {}.", name));
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

// The files of a checkpoint in memory, which refer to its tensors.
class Files {
 public:
  /// \param folder  For error messages.
  Files(const Checkpoint& checkpoint, const fs::path& folder)
      : manifest_{checkpoint.run, checkpoint.step, {}} {
    parts_.reserve(3);
    add(folder, kModel, checkpoint.model, {});
    add(folder, kOptimizer, checkpoint.optimizer, {});
    add(folder, kTraining, checkpoint.training, checkpoint.settings);
    // Hashes are computed while the files are written. If no thread is
    // available, std::async's default policy computes them in get().
    for (Part& part : parts_) {
      part.sha256 = std::async([&part] { return part.image.sha256(); });
    }
  }
  Files(const Files&) = delete;

  const Manifest& manifest() {
    if (manifest_.files.empty()) {
      for (Part& part : parts_) {
        manifest_.files.push_back(
            {part.name, part.image.size(), part.sha256.get()});
      }
    }
    return manifest_;
  }

  // The manifest is written last; if it exists, nothing is missing.
  void write(const fs::path& folder, bool durable) {
    for (const Part& part : parts_) {
      part.image.write(folder / part.name, durable);
    }
    AtomicFile file(folder / kManifest);
    file.write(to_text(manifest()));
    file.commit(durable);
    if (durable) sync_folder(folder);
  }

 private:
  struct Part {
    const char* name;
    SafetensorsImage image;
    std::future<std::string> sha256;
  };

  void add(
      const fs::path& folder,
      const char* name,
      const StateDict& state,
      const std::map<std::string, std::string>& metadata) {
    parts_.push_back(
        {name, SafetensorsImage(state, metadata, folder / name), {}});
  }

  Manifest manifest_;
  std::vector<Part> parts_;
};

// Unset if the checkpoint is missing or not intact.
std::optional<Manifest> manifest_of_whole(const fs::path& step) {
  std::error_code error;
  if (!fs::exists(step, error)) return std::nullopt;
  try {
    return verify(step);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

// True if both have the same run and the same weights. They may still have been
// captured at different points: one after a batch, the other at the end of its
// epoch, where a callback may have frozen groups, which clears the optimizer.
bool is_same_moment(const Manifest& a, const Manifest& b) {
  const auto weights = [](const Manifest& manifest) {
    return std::ranges::find(manifest.files, kModel, &Manifest::File::name)
        ->sha256;
  };
  return a.run == b.run && weights(a) == weights(b);
}

// Syncs the files of a save that was not durable to the disk.
void sync_files(const fs::path& step, const Manifest& manifest) {
  const auto sync = [](const fs::path& path) {
    sync_file(open_regular_file(path), path);
  };
  for (const Manifest::File& file : manifest.files) sync(step / file.name);
  sync(step / kManifest);
  sync_folder(step);
}

void move_to_name(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw IoError(from.string(), "rename it to " + to.string(), error.value());
  }
}

bool has_manifest(const fs::path& step) {
  std::error_code error;
  return fs::exists(step / kManifest, error);
}

// Removes the manifest first: without it, the folder is not a checkpoint, even
// if removal is interrupted. The next run removes the rest.
void remove_checkpoint(const fs::path& step) {
  std::error_code error;
  fs::remove(step / kManifest, error);
  if (!error) fs::remove_all(step, error);
}

// Returns one number for all checkpoints that a save renames.
int64_t next_number(const fs::path& folder) {
  int64_t last = 0;
  for (const auto& [name, path] : named_folders(folder)) {
    last = std::max(last, name.number);
  }
  return last + 1;
}

// Renames a checkpoint instead of deleting it: users may want to return to it,
// or examine the damage.
fs::path
put_aside(const fs::path& step, std::string_view kind, int64_t number) {
  fs::path aside =
      step_folder(step.parent_path(), parse_name(step)->step).string() +
      fmt::format("{}{}", kind, number);
  move_to_name(step, aside);
  return aside;
}

// At any time, either the old or the new folder is the checkpoint of the step.
void take_name(const fs::path& staged, const fs::path& target, int64_t number) {
  const fs::path before = before_of(target);
  std::error_code error;
  if (fs::exists(target, error)) {
    // Exists if a program was killed in this function.
    if (fs::exists(before, error)) put_aside(before, kReplaced, number + 1);
    move_to_name(target, before);
  }
  move_to_name(staged, target);
}

// The run was resumed from an earlier step, so its later checkpoints belong to
// an abandoned branch. Renames the newest first, so that if the program is
// killed, the remaining checkpoints have no gaps.
std::vector<fs::path> put_later_aside(
    const fs::path& folder,
    const Checkpoint& checkpoint,
    int64_t branch_step,
    int64_t number) {
  std::vector<fs::path> result;
  for (const fs::path& path : list_checkpoints(folder)) {
    const int64_t step = parse_name(path)->step;
    if (step <= branch_step) break;
    const std::string run = run_of_checkpoint(path);
    const bool is_of_others = !run.empty() && run != checkpoint.run;
    if (step == checkpoint.step || is_of_others) continue;
    result.push_back(
        put_aside(path, run.empty() ? kDamaged : kReplaced, number));
  }
  return result;
}

void prune_step_folders(
    const fs::path& folder,
    const Checkpoint& newest,
    int64_t keep) {
  int64_t kept = 0;
  for (const fs::path& path : list_checkpoints(folder)) {
    // Removes neither later checkpoints, which belong to an abandoned branch,
    // nor checkpoints of other runs.
    if (parse_name(path)->step > newest.step) continue;
    if (++kept <= keep) continue;
    if (run_of_checkpoint(path) == newest.run) remove_checkpoint(path);
  }
}

// Of the replaced checkpoints, keeps the last ones, up to the same number.
void prune_replaced(
    const fs::path& folder,
    const Checkpoint& newest,
    int64_t keep) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, fs::path>> replaced;
  for (const auto& [name, path] : named_folders(folder)) {
    if (name.kind == kReplaced && run_of_checkpoint(path) == newest.run) {
      replaced.push_back({{name.number, name.step}, path});
    }
  }
  std::ranges::sort(replaced, std::greater<>());
  for (size_t i = static_cast<size_t>(keep); i < replaced.size(); ++i) {
    remove_checkpoint(replaced[i].second);
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
  std::map<int64_t, fs::path, std::greater<>> found;
  for (const auto& [name, path] : named_folders(folder)) {
    if (name.kind.empty()) found[name.step] = path;
    if (name.kind == kBefore) found.emplace(name.step, path);
  }
  std::vector<fs::path> result;
  result.reserve(found.size());
  for (auto& [step, path] : found) result.push_back(std::move(path));
  return result;
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
  // A checkpoint without a manifest was removed in part, because a removal
  // deletes the manifest first. But the newest checkpoint is never removed. If
  // it has no manifest, it was damaged in a different way, and is kept so that
  // users can examine it.
  const std::vector<fs::path> steps = list_checkpoints(folder);
  const auto newest = std::ranges::find_if(steps, has_manifest);
  const int64_t newest_step =
      newest == steps.end() ? -1 : parse_name(*newest)->step;
  const int64_t number = next_number(folder);
  for (const auto& [name, path] : named_folders(folder)) {
    const fs::path step = step_folder(folder, name.step);
    std::error_code error;
    const bool is_before = name.kind == kBefore;
    if (is_before && !fs::exists(step, error)) {
      move_to_name(path, step);
    } else if (!has_manifest(path)) {
      const bool is_removed = is_before || name.kind == kReplaced ||
                              (name.kind.empty() && name.step < newest_step);
      if (is_removed) remove_checkpoint(path);
    } else if (is_before) {
      const std::optional<Manifest> whole = manifest_of_whole(step);
      const bool is_kept =
          !whole || !is_same_moment(read_manifest(path), *whole);
      is_kept ? void(put_aside(path, kReplaced, number))
              : remove_checkpoint(path);
    }
  }
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifest, error) ||
         !list_checkpoints(folder).empty();
}

std::vector<fs::path> write_checkpoint(
    const fs::path& folder,
    const Checkpoint& checkpoint,
    const WriteCheckpointOptions& options) {
  const fs::path target = step_folder(folder, checkpoint.step);
  Files files(checkpoint, target);
  const int64_t number = next_number(folder);
  const std::optional<Manifest> there = manifest_of_whole(target);
  std::vector<fs::path> aside;
  if (there && to_text(*there) == to_text(files.manifest())) {
    if (options.durable) sync_files(target, *there);
  } else {
    const StagingFolder staging(folder / kUnfinished);
    files.write(staging.path(), options.durable);
    take_name(staging.path(), target, number);
  }
  if (options.branch_step) {
    aside = put_later_aside(folder, checkpoint, *options.branch_step, number);
  }
  if (options.durable) sync_folder(folder);
  const fs::path before = before_of(target);
  std::error_code error;
  if (fs::exists(before, error)) {
    if (there && is_same_moment(*there, files.manifest())) {
      remove_checkpoint(before);
    } else {
      aside.push_back(put_aside(before, there ? kReplaced : kDamaged, number));
    }
  }
  AtomicFile latest(folder / kLatest);
  latest.write(target.filename().string() + "\n");
  latest.commit(options.durable);
  if (options.keep > 0) {
    prune_step_folders(folder, checkpoint, options.keep);
    prune_replaced(folder, checkpoint, options.keep);
  }
  return aside;
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
              "the checkpoint cannot be used; pass the run's folder to use the "
              "newest complete checkpoint. {}",
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
            "as SaveCheckpoint writes them."
          : fmt::format(
                "none of its {} checkpoints is complete; the newest: {}",
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
            "{} already writes checkpoints here; wait for it, or use a "
            "different folder for this run.",
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

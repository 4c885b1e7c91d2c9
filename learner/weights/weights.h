#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tern/learner/state_dict.h"

namespace tern {

class AtomicFile;

struct LoadWeightsOptions {
  /// The dictionary of a `.pth` checkpoint that holds the weights:
  /// "state_dict", or "ema/model" for a nested one. Empty: the only such
  /// dictionary in the file, or the largest if it is also the only one whose
  /// values are all tensors.
  std::string key = {};

  /// Return tensors that are views of the memory-mapped file and are read when
  /// they are used. A file with a checksum (`.pth`, `sha256`, tern.sha256) is
  /// still read once in full to verify it. If another program truncates the
  /// file, using a tensor ends this program with SIGBUS. By default the bytes
  /// are copied.
  bool memory_map = false;

  /// The expected SHA-256 of the file, 64 hexadecimal digits. Empty: read from
  /// `path`.sha256, if that file exists (`sha256sum FILE > FILE.sha256`).
  std::string sha256 = {};
};

/// Reads the tensors of a weight file to the CPU. The format is detected from
/// the content: safetensors, or the output of Python's `torch.save` in the
/// current zip format or the legacy format from before PyTorch 1.6. Never runs
/// code from a file: rejects anything but tensors, containers, numbers and
/// strings.
///
///   StateDict state = load_weights("resnet18.safetensors");
///   model.load_state_dict(state, {.strict = false});
///
/// Verifies every checksum in the file. The legacy format has no checksums, and
/// safetensors only the checksums that Tern adds. Without a checksum or a known
/// SHA-256, a flipped bit in a value is not detected; `unverified` is then
/// true.
///
/// Tensors keep their dtype and strides. Tensors that shared memory when a
/// `.pth` file was saved share it again. Dictionary entries that are not
/// tensors, such as an epoch number, are left out.
///
/// \throws DataError naming the file and the problem if the file is damaged,
///         truncated or not a weight file, contains a name outside the
///         allow-list, fails a checksum, or contains several dictionaries of
///         tensors without a `key` that selects one; IoError if it cannot be
///         read.
StateDict load_weights(
    const std::filesystem::path& path,
    const LoadWeightsOptions& options = {});

struct SaveWeightsOptions {
  /// Wait until the file is on disk, so that it survives a power failure.
  bool durable = true;
  /// Store the SHA-256 of the tensors in a safetensors file's metadata (as
  /// "tern.sha256"), and the SHA-256 of names, dtypes, shapes and metadata (as
  /// "tern.header"). `load_weights` then rejects the file if a single bit
  /// differs.
  bool checksum = false;
  /// Write `path`.sha256, which `sha256sum -c` and `load_weights` read. If
  /// false, a `path`.sha256 from an earlier save is removed.
  bool sha256_file = false;
};

/// The bytes of a safetensors file, for hashing and writing. References tensors
/// that are already on the CPU; do not change them during its lifetime.
class SafetensorsImage {
 public:
  /// \param path  For error messages.
  /// \throws the errors of save_safetensors.
  SafetensorsImage(
      const StateDict& state,
      const std::map<std::string, std::string>& metadata,
      const std::filesystem::path& path,
      bool checksum = false);

  int64_t size() const;        ///< of the file, in bytes
  std::string sha256() const;  ///< of the file, in hexadecimal
  void write(const std::filesystem::path& path, bool durable = true) const;
  void write(AtomicFile& file) const;  ///< the caller commits it

 private:
  std::string header_;
  std::vector<torch::Tensor> tensors_;  // on the CPU, in file order
};

/// Writes a safetensors file, which Python's `safetensors` opens. Tensors may
/// be on any device and have any strides; each is written contiguously. The
/// file is written under a temporary name and then renamed, so that a failure
/// leaves an older file intact.
///
/// \param metadata  Arbitrary strings, which Python reads with
///                  `safe_open(path).metadata()`.
/// \throws c10::ValueError if a tensor is undefined, sparse, quantized or of a
///         dtype that the format does not support; IoError if the file cannot
///         be written.
void save_safetensors(
    const std::filesystem::path& path,
    const StateDict& state,
    const std::map<std::string, std::string>& metadata = {},
    const SaveWeightsOptions& options = {});

/// Writes a state dict as `torch.save` does; Python's `torch.load(path,
/// weights_only=True)` reads it as an OrderedDict of CPU tensors. Dense tensors
/// keep their strides. Several names of the same tensor share memory again.
/// \throws the errors of save_safetensors.
void save_pth(
    const std::filesystem::path& path,
    const StateDict& state,
    const SaveWeightsOptions& options = {});

/// Returns the metadata of a safetensors file without reading the tensors.
/// \throws DataError if the file is not a safetensors file; IoError.
std::map<std::string, std::string> safetensors_metadata(
    const std::filesystem::path& path);

}  // namespace tern

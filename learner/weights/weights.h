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
  /// Which dictionary of a `.pth` checkpoint holds the weights: "state_dict",
  /// or "ema/model" for one inside another. Empty: the only one there is.
  std::string key = {};

  /// Return tensors that are views of the mapped file, read when they are used;
  /// where there is a checksum (`.pth`, `sha256`, tern.sha256) all bytes are
  /// read once to verify it. If another program truncates the file meanwhile,
  /// using a tensor ends this one with SIGBUS; by default the bytes are copied.
  bool memory_map = false;

  /// The SHA-256 that the file must have, 64 hexadecimal digits. Empty: that of
  /// the file `path`.sha256, if there is one (`sha256sum FILE > FILE.sha256`).
  std::string sha256 = {};
};

/// The tensors of a weight file, on the CPU. What the file is, is known by its
/// content: safetensors, or what Python's `torch.save` wrote in today's zip
/// format or the legacy format from before PyTorch 1.6. No code of a file is
/// run: what is not a tensor, a container, a number or a string is refused.
///
///   StateDict state = load_weights("resnet18.safetensors");
///   model.load_state_dict(state, {.strict = false});
///
/// Every checksum that there is, is verified. The legacy format has none, nor
/// has safetensors but for Tern's own: a flipped bit of a value then goes
/// unnoticed, unless the file's SHA-256 is known, and `unverified` says so.
///
/// Tensors keep type and strides; those that shared memory when a `.pth` was
/// saved share it again. Entries of a dictionary that are no tensors (an epoch
/// number) are left out.
///
/// \throws DataError naming the file and the fault if it is damaged, cut off,
///         of another format, holds a name outside the allow-list, fails a
///         checksum, or holds several dictionaries of tensors and `key` names
///         none of them; IoError if it cannot be read.
StateDict load_weights(
    const std::filesystem::path& path,
    const LoadWeightsOptions& options = {});

struct SaveWeightsOptions {
  /// Wait until the file is on the disk, so that a power cut cannot take it.
  bool durable = true;
  /// Put the SHA-256 of the tensors into a safetensors file's metadata (as
  /// "tern.sha256"), and that of names, types, shapes and metadata (as
  /// "tern.header"); `load_weights` then refuses the file if a bit differs.
  bool checksum = false;
  /// Writes `path`.sha256, which `sha256sum -c` and `load_weights` read. A
  /// save without it removes one of an earlier save.
  bool sha256_file = false;
};

/// The bytes of a safetensors file, to hash and to write. Refers to the tensors
/// that are on the CPU already: they must not change while it exists.
class SafetensorsImage {
 public:
  /// \param path  For errors. \throws as save_safetensors.
  SafetensorsImage(
      const StateDict& state,
      const std::map<std::string, std::string>& metadata,
      const std::filesystem::path& path,
      bool checksum = false);

  int64_t size() const;        ///< bytes of the file
  std::string sha256() const;  ///< of the file, in hexadecimal
  void write(const std::filesystem::path& path, bool durable = true) const;
  void write(AtomicFile& file) const;  ///< the caller commits it

 private:
  std::string header_;
  std::vector<torch::Tensor> tensors_;  // on the CPU, in the file's order
};

/// Writes a safetensors file, which Python's `safetensors` opens. Tensors may
/// be on any device and of any strides; each is written contiguously. The name
/// gets the whole file or keeps the old one: it is written beside and renamed.
///
/// \param metadata  Any texts; Python's `safe_open(path).metadata()`.
/// \throws c10::ValueError if a tensor is undefined, sparse, quantized or of a
///         type that the format does not know; IoError if it cannot be written.
void save_safetensors(
    const std::filesystem::path& path,
    const StateDict& state,
    const std::map<std::string, std::string>& metadata = {},
    const SaveWeightsOptions& options = {});

/// Writes what Python's `torch.load(path, weights_only=True)` gives back as an
/// OrderedDict of CPU tensors: as `torch.save` does, with their strides where
/// these are dense. Names of one and the same tensor share memory again.
/// \throws as save_safetensors.
void save_pth(
    const std::filesystem::path& path,
    const StateDict& state,
    const SaveWeightsOptions& options = {});

/// The metadata of a safetensors file, without reading the tensors.
/// \throws DataError if the file is no safetensors file; IoError.
std::map<std::string, std::string> safetensors_metadata(
    const std::filesystem::path& path);

}  // namespace tern

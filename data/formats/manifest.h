#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// The list of a checkpoint's files with their hashes, itself guarded by a
/// hash in its last line: no flipped bit and no missing byte goes unseen.
///
///   tern-checkpoint 1
///   run 0f63c1d2a8b94e57
///   step 1200
///   file <SHA-256> <bytes> model.safetensors
///   end <SHA-256 of all the lines above>
struct Manifest {
  struct File {
    std::string name;    // in the folder of the manifest; no separators
    int64_t size = 0;    // bytes
    std::string sha256;  // 64 lower-case hexadecimal digits
  };

  std::string run;   // 1 to 64 letters and digits: which training this is
  int64_t step = 0;  // training batches done
  std::vector<File> files;
};

std::string to_text(const Manifest& manifest);

/// \param path  For the error messages.
/// \throws DataError for anything but what `to_text` writes: damaged, cut off,
///         or of a newer format.
Manifest parse_manifest(
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path);

}  // namespace tern

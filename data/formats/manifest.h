#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// Lists a checkpoint's files with their hashes. The last line is a hash of all
/// lines above it, which detects any flipped bit or missing byte.
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

  std::string run;   // 1 to 64 letters and digits; identifies the run
  int64_t step = 0;  // completed training batches
  std::vector<File> files;
};

std::string to_text(const Manifest& manifest);

/// \param path  For error messages.
/// \throws DataError unless the bytes are exactly what `to_text` writes, for
///         example if they are damaged, truncated or in a newer format.
Manifest parse_manifest(
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path);

}  // namespace tern

#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/sha256.h"

struct archive;

namespace tern {

/// Writes a tar archive of regular files. The archive appears under its name
/// only once it is complete. The same files produce the same bytes, since
/// times, owners and modes are not stored.
///
///   TarWriter shard("train-000000.tar");
///   shard.add("0001.jpg", image);
///   shard.add("0001.cls", "7");
///   shard.finish();   // returns the archive's SHA-256
class TarWriter {
 public:
  /// \throws IoError if the file cannot be created.
  explicit TarWriter(const std::filesystem::path& path);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  /// \throws DataError for a name that is not allowed in a shard, such as
  ///         `../x`; IoError if the disk is full.
  void add(const std::string& name, std::span<const uint8_t> bytes);
  void add(const std::string& name, std::string_view text) {
    add(name, as_bytes(text));
  }

  /// Bytes of the archive so far.
  uint64_t size() const { return file_.size(); }

  /// Completes the archive and gives the file its final name.
  /// \return Its SHA-256, 64 lower-case digits.
  std::string finish();

 private:
  static ssize_t
  take_bytes(archive* archive, void* self, const void* bytes, size_t size);
  void check(int result);

  std::string path_;
  AtomicFile file_;
  Sha256 hash_;
  std::exception_ptr error_;
  bool is_abandoned_ = false;  // nothing more is written
  std::unique_ptr<archive, int (*)(archive*)> archive_;
};

}  // namespace tern

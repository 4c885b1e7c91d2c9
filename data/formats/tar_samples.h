#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/formats/tar_index.h"

namespace tern {

/// The sample that a file of a shard belongs to: its name up to the first dot
/// after the last slash, "cat/0012" of "cat/0012.seg.png".
std::string_view sample_key(std::string_view name);

/// What it is of that sample: the rest, "seg.png". Empty for a file that
/// belongs to none: hidden, or without a suffix.
std::string_view sample_field(std::string_view name);

/// Whether two names of fields are the same: case does not count.
bool is_same_field(std::string_view a, std::string_view b);

/// The files of a shard in WebDataset's layout, sample by sample.
class TarSamples {
 public:
  /// \param path  Of the archive, for messages.
  /// \throws DataError if files of a sample do not stand together, or a sample
  ///         has a field twice: half a sample would be taken for a whole one.
  TarSamples(std::vector<TarMember> members, const std::string& path);
  TarSamples() = default;

  int64_t size() const { return static_cast<int64_t>(begins_.size()); }
  std::span<const TarMember> operator[](int64_t index) const;

 private:
  std::vector<TarMember> members_;
  std::vector<uint32_t> begins_;  // of each sample, in members_
};

}  // namespace tern

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "tern/data/formats/archives/tar_shard.h"

namespace tern {

/// One sample of a shard: the files whose names are equal up to the first dot.
/// Bytes are read on access.
///
///   // 0001.jpg, 0001.cls, 0001.json
///   sample.key();             // "0001"
///   sample.bytes("jpg");
///   sample.integer("cls");    // 7
class TarSample {
 public:
  TarSample(std::shared_ptr<const TarShard> shard, int64_t index);

  std::string_view key() const;
  /// Describes the shard and the sample, for messages.
  std::string describe() const { return shard_->describe(index_); }

  /// The sample's files, in the shard's order.
  std::span<const TarMember> members() const { return members_; }
  /// Returns the file of this field (case-insensitive), or null if there is
  /// none.
  const TarMember* find(std::string_view field) const;
  /// Like `find`, but throws if there is none.
  /// \throws DataError that lists the existing fields.
  const TarMember& member(std::string_view field) const;
  /// Lists the sample's fields, for messages; if one contains a dot, also says
  /// where the sample's name ends and the field begins.
  std::string describe_fields() const;

  /// \throws DataError if the field is missing, the shard was changed, or the
  ///         content has an unexpected format; IoError. All functions below
  ///         throw the same.
  std::vector<uint8_t> bytes(std::string_view field) const;
  /// Reads the bytes into the caller's memory, which must have the member's
  /// size.
  void read(const TarMember& member, std::span<uint8_t> bytes) const {
    shard_->read(member, bytes);
  }
  /// Returns a field such as txt or json as text. Parse JSON with `read_json`.
  std::string text(std::string_view field) const;
  /// Returns an integer in decimal digits, as in a cls field.
  int64_t integer(std::string_view field) const;
  /// Returns the NumPy array in an npy field, with its shape and dtype.
  torch::Tensor array(std::string_view field) const;
  /// Returns a field as a batch of one sample (first dimension 1), with a type
  /// that depends on its last suffix: npy as from `array`; cls, id and index as
  /// [1] kLong; any other as [1, bytes] kByte.
  torch::Tensor tensor(std::string_view field) const;

 private:
  std::shared_ptr<const TarShard> shard_;
  int64_t index_;
  std::span<const TarMember> members_;
};

}  // namespace tern

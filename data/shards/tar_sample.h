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

/// One sample of a shard: the files there whose names are equal up to the first
/// dot. Bytes are read when they are asked for.
///
///   // 0001.jpg, 0001.cls, 0001.json
///   sample.key();             // "0001"
///   sample.bytes("jpg");
///   sample.integer("cls");    // 7
class TarSample {
 public:
  TarSample(std::shared_ptr<const TarShard> shard, int64_t index);

  std::string_view key() const;
  /// Names shard and sample, for messages.
  std::string describe() const { return shard_->describe(index_); }

  /// Its files, in the shard's order.
  std::span<const TarMember> members() const { return members_; }
  /// The file that is this field, whatever its case; null if there is none.
  const TarMember* find(std::string_view field) const;
  /// The same. \throws DataError naming the fields that there are.
  const TarMember& member(std::string_view field) const;
  /// Names its fields, for messages; if one has a dot, also says where the
  /// sample's name ends and the field begins.
  std::string describe_fields() const;

  /// \throws DataError if there is no such field or the shard was changed, or
  ///         the content is not what is asked for; so do all below. IoError.
  std::vector<uint8_t> bytes(std::string_view field) const;
  /// The same into memory of the caller's, which is of the member's size.
  void read(const TarMember& member, std::span<uint8_t> bytes) const {
    shard_->read(member, bytes);
  }
  /// A field such as txt or json, as it stands; `read_json` parses the latter.
  std::string text(std::string_view field) const;
  /// A whole number in decimal digits, such as a cls has.
  int64_t integer(std::string_view field) const;
  /// NumPy's array in a npy field, with its shape and type.
  torch::Tensor array(std::string_view field) const;
  /// A field by its last suffix, with N = 1 in front: npy as `array`, cls, id
  /// and index as [1] kLong, any other as [1, bytes] kByte.
  torch::Tensor tensor(std::string_view field) const;

 private:
  std::shared_ptr<const TarShard> shard_;
  int64_t index_;
  std::span<const TarMember> members_;
};

}  // namespace tern

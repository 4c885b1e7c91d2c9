#include "tern/data/shards/tar_sample.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/npy.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// Limited, because a field is read into memory as a whole.
constexpr uint64_t kMaxFieldBytes = uint64_t{4} << 30;

torch::ScalarType npy_type(const NpyArray& array) {
  // Indexed by the base-2 logarithm of the element size.
  constexpr torch::ScalarType
      kSigned[] = {torch::kChar, torch::kShort, torch::kInt, torch::kLong},
      kUnsigned[] =
          {torch::kByte, torch::kUInt16, torch::kUInt32, torch::kUInt64},
      kReal[] = {torch::kHalf, torch::kHalf, torch::kFloat, torch::kDouble};
  const int power = std::countr_zero(static_cast<uint64_t>(array.item_bytes));
  if (array.kind == 'b') return torch::kBool;
  if (array.kind == 'i') return kSigned[power];
  if (array.kind == 'u') return kUnsigned[power];
  if (array.kind == 'f') return kReal[power];
  return power == 3 ? torch::kComplexFloat : torch::kComplexDouble;
}

}  // namespace

TarSample::TarSample(std::shared_ptr<const TarShard> shard, int64_t index)
    : shard_(std::move(shard)),
      index_(index),
      members_(shard_->samples().at(index)) {}

std::string_view TarSample::key() const {
  return sample_key(members_.front().name);
}

const TarMember* TarSample::find(std::string_view field) const {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](const TarMember& m) {
        return is_same_field(sample_field(m.name), field);
      });
  return found == members_.end() ? nullptr : &*found;
}

const TarMember& TarSample::member(std::string_view field) const {
  const TarMember* const found = find(field);
  if (found == nullptr) {
    throw DataError(
        describe(),
        fmt::format(
            "has no field '{}', only {}. Create the shard with this field, or "
            "name a different field.",
            field,
            describe_fields()));
  }
  return *found;
}

std::string TarSample::describe_fields() const {
  std::vector<std::string> fields;
  bool has_dots = false;
  for (const TarMember& member : members_) {
    const std::string_view field = sample_field(member.name);
    has_dots = has_dots || field.find('.') != field.npos;
    fields.push_back(printable(field));
  }
  return fmt::format(
      "{}{}",
      fmt::join(fields, ", "),
      has_dots ? " (a sample's name ends at its first dot, and its field "
                 "begins after it)"
               : "");
}

std::vector<uint8_t> TarSample::bytes(std::string_view field) const {
  const TarMember& found = member(field);
  if (found.size > kMaxFieldBytes) {
    throw DataError(
        describe(),
        fmt::format(
            "has {} bytes in its field '{}'; expected at most {}. Split it.",
            found.size,
            field,
            kMaxFieldBytes));
  }
  std::vector<uint8_t> content(found.size);
  read(found, content);
  return content;
}

std::string TarSample::text(std::string_view field) const {
  const std::vector<uint8_t> content = bytes(field);
  return {content.begin(), content.end()};
}

int64_t TarSample::integer(std::string_view field) const {
  const std::string content = text(field);
  // Editors and `echo` add a line break or a space.
  const size_t end = content.find_last_not_of(" \r\n") + 1;
  int64_t value = 0;
  const auto [stop, error] =
      std::from_chars(content.data(), content.data() + end, value);
  if (error != std::errc() || stop != content.data() + end) {
    throw DataError(
        describe(),
        fmt::format(
            "has {} in its field '{}'; expected a whole number.",
            printable(content),
            field));
  }
  return value;
}

torch::Tensor TarSample::array(std::string_view field) const {
  const std::vector<uint8_t> content = bytes(field);
  const NpyArray array = parse_npy(content, describe());
  const torch::Tensor tensor = torch::empty(array.shape, npy_type(array));
  if (!array.values.empty()) {
    std::memcpy(tensor.data_ptr(), array.values.data(), array.values.size());
  }
  return tensor;
}

torch::Tensor TarSample::tensor(std::string_view field) const {
  const std::string_view suffix = field.substr(field.rfind('.') + 1);
  const auto is = [&](std::string_view name) {
    return is_same_field(suffix, name);
  };
  if (is("npy")) return array(field).unsqueeze(0);
  if (is("cls") || is("id") || is("index")) {
    return torch::full({1}, integer(field), torch::kLong);
  }
  const TarMember& found = member(field);
  const torch::Tensor content =
      torch::empty({1, static_cast<int64_t>(found.size)}, torch::kByte);
  read(found, {content.data_ptr<uint8_t>(), found.size});
  return content;
}

}  // namespace tern

#include "tern/data/formats/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kFormatMaxHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

uint64_t byte_count(const StoredTensor& tensor, int64_t elements) {
  return static_cast<uint64_t>(elements) * info_of(tensor.type).bytes;
}

// Reads one entry of the header; its offsets become a storage, still relative
// to the end of the header.
void read_entry(JsonReader& json, StoredTensor& tensor, StoredBytes& storage) {
  std::string type_name;
  std::vector<int64_t> offsets;
  tensor.shape = {-1};
  read_json(
      json,
      {{"dtype", &type_name},
       {"shape", &tensor.shape},
       {"data_offsets", &offsets}});
  const auto fail = [&](const std::string& what) {
    json.fail(printable(tensor.name) + " " + what);
  };
  const std::optional<StoredType> type =
      type_named(&StoredTypeInfo::safetensors, type_name);
  if (!type)
    fail("has the dtype " + printable(type_name) + ", which is unknown");
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[0] > offsets[1]) {
    fail("has no data_offsets [begin, end]");
  }
  tensor.type = *type;
  storage.begin = static_cast<uint64_t>(offsets[0]);
  storage.size = static_cast<uint64_t>(offsets[1] - offsets[0]);
  const std::optional<int64_t> count = element_count(tensor.shape);
  if (!count || tensor.shape.size() > 64) {
    fail("has no shape, or its shape is too large");
  }
  if (byte_count(tensor, *count) != storage.size) {
    fail(
        "has " + std::to_string(storage.size) +
        " bytes; its dtype and shape expect " +
        std::to_string(byte_count(tensor, *count)));
  }
  tensor.strides = contiguous_strides(tensor.shape);
}

// Checks that storages follow each other without gaps from `begin` to the end
// of the file.
void check_layout(
    const StoredWeights& weights,
    uint64_t begin,
    const ByteFile& file) {
  std::vector<size_t> order(weights.storages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    return std::pair(weights.storages[i].begin, weights.storages[i].size);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return place(a) < place(b);
  });
  uint64_t end = begin;
  for (const size_t i : order) {
    const auto [at, size] = place(i);
    if (at != end) {
      throw DataError(
          file.path(),
          printable(weights.tensors[i].name) + " begins at byte " +
              std::to_string(at - begin) + " of the data; expected " +
              std::to_string(end - begin) +
              ", since tensors neither overlap nor leave gaps. The header is "
              "damaged.");
    }
    end = at + size;
  }
  if (end != file.size()) {
    throw DataError(
        file.path(),
        "has " + std::to_string(file.size()) + " bytes; its header expects " +
            std::to_string(end) +
            (file.size() < end ? ". The file is truncated." : "."));
  }
}

}  // namespace

std::string safetensors_header_sha256(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(as_bytes(std::to_string(text.size()) + ":"));
    hash.update(as_bytes(text));
  };
  for (const auto& [key, text] : metadata) {
    if (key == kSafetensorsHeaderChecksum) continue;
    add(key);
    add(text);
  }
  for (const StoredTensor& tensor : tensors) {
    add(tensor.name);
    add(info_of(tensor.type).safetensors);
    std::string shape;
    for (const int64_t size : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    add(shape);
  }
  return hash.hex_digest();
}

bool is_safetensors(const ByteFile& file) {
  std::array<uint8_t, kLengthBytes + 1> head{};
  if (file.size() < head.size()) return false;
  file.read(0, head);
  return head[kLengthBytes] == '{' &&
         load_le64(head.data()) <= kFormatMaxHeader;
}

StoredWeights read_safetensors_header(
    const ByteFile& file,
    uint64_t max_header_bytes) {
  std::array<uint8_t, kLengthBytes> length{};
  file.read(0, length);
  const uint64_t size = load_le64(length.data());
  const uint64_t room = file.size() - kLengthBytes;
  if (size > room) {
    throw DataError(
        file.path(),
        "has a stated header length of " + std::to_string(size) +
            " bytes, but only " + std::to_string(room) +
            " bytes after the first 8. The file is truncated, or not a "
            "safetensors file.");
  }
  if (size > max_header_bytes) {
    throw DataError(
        file.path(),
        "has a header of " + std::to_string(size) +
            " bytes; expected at most " + std::to_string(max_header_bytes) +
            ".");
  }
  const std::vector<uint8_t> header = file.read(kLengthBytes, size);
  if (header.empty() || header[0] != '{') {
    throw DataError(
        file.path(),
        "has a header that does not begin with '{'; expected a safetensors "
        "file.");
  }

  JsonReader json(as_text(header), file.path());
  StoredWeights weights;
  std::string name;
  json.begin_object();
  while (json.next_key(name)) {
    if (name == kMetadata) {
      json.begin_object();
      while (json.next_key(name)) weights.metadata[name] = json.string();
      continue;
    }
    StoredTensor tensor{.name = name, .storage = weights.storages.size()};
    StoredBytes storage;
    read_entry(json, tensor, storage);
    storage.begin += kLengthBytes + size;
    weights.tensors.push_back(std::move(tensor));
    weights.storages.push_back(storage);
  }
  json.end();
  check_layout(weights, kLengthBytes + size, file);
  const auto sum = weights.metadata.find(kSafetensorsHeaderChecksum);
  if (sum != weights.metadata.end() &&
      sum->second !=
          safetensors_header_sha256(weights.tensors, weights.metadata)) {
    throw DataError(
        file.path(),
        "has a header whose SHA-256 differs from the stated one. The file is "
        "damaged or was changed. Download or save it again.");
  }
  return weights;
}

std::vector<size_t> safetensors_order(
    const std::vector<StoredTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return info_of(tensors[a].type).bytes > info_of(tensors[b].type).bytes;
  });
  return order;
}

std::string safetensors_header(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::string& path) {
  std::vector<uint64_t> begins(tensors.size()), ends(tensors.size());
  uint64_t end = 0;
  for (const size_t i : safetensors_order(tensors)) {
    begins[i] = end;
    end += byte_count(tensors[i], element_count(tensors[i].shape).value());
    ends[i] = end;
  }

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header.push_back({kMetadata, metadata});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    const std::string_view type = info_of(tensor.type).safetensors;
    if (tensor.name == kMetadata || type.empty()) {
      throw DataError(
          path,
          "cannot hold the tensor " + printable(tensor.name) + " of dtype " +
              std::string(info_of(tensor.type).dtype) +
              "; the safetensors format has no such dtype, or does not allow "
              "such a name.");
    }
    header.push_back(
        {tensor.name,
         {{"dtype", type},
          {"shape", tensor.shape},
          {"data_offsets", {begins[i], ends[i]}}}});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw DataError(path, "cannot hold a name or a string that is not UTF-8.");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // keeps the tensors aligned
  if (text.size() > kFormatMaxHeader) {
    throw DataError(path, "would have a header of more than 100 MB.");
  }

  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length += static_cast<char>(text.size() >> (8 * i));
  }
  return length + text;
}

}  // namespace tern

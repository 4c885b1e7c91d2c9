#include "tern/data/fingerprint.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/stream_dataset.h"

namespace fs = std::filesystem;

namespace tern {

namespace {

constexpr int64_t kFiles = 64, kSamples = 8;

void add(Sha256& hash, const std::string& text) {
  hash.update(as_bytes(text));
}

// Hashes a file's name within its folder, and its size.
bool add_file(Sha256& hash, const std::string& name) {
  const fs::path path(name);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const auto size = fs::file_size(path, error);
  if (error) return false;
  add(hash,
      fmt::format(
          "{}/{} {}\n",
          path.parent_path().filename().string(),
          path.filename().string(),
          size));
  return true;
}

void add_sample(Sha256& hash, const Dataset& dataset, int64_t index) {
  try {
    const Batch batch = dataset.get_batch({index}, {});
    for (const Tensors* tensors : {&batch.inputs, &batch.targets}) {
      for (const torch::Tensor& tensor : *tensors) {
        const torch::Tensor dense = tensor.contiguous();
        add(hash, fmt::format("{} ", fmt::join(dense.sizes(), ",")));
        hash.update(
            {static_cast<const uint8_t*>(dense.const_data_ptr()),
             dense.nbytes()});
      }
    }
  } catch (const DataError&) {
    add(hash, "unreadable\n");  // training will report it, or skip it
  }
}

}  // namespace

std::string fingerprint(const Dataset& dataset) {
  Sha256 hash;
  const int64_t size = dataset.size();
  add(hash, fmt::format("{}\n", size));
  if (dynamic_cast<const StreamEpochs*>(&dataset) || dataset.can_end_early()) {
    return hash.hex_digest().substr(0, 16);  // reading would consume it
  }
  bool are_files = size > 0;
  const auto each = [size](int64_t count, const auto& act) {
    count = std::min(count, size);
    for (int64_t i = 0; i < count; ++i) act(i * size / count);
  };
  each(kFiles, [&](int64_t index) {
    are_files = are_files && add_file(hash, dataset.describe(index));
  });
  if (!are_files) {
    each(kSamples, [&](int64_t index) { add_sample(hash, dataset, index); });
  }
  return hash.hex_digest().substr(0, 16);  // short enough to read
}

}  // namespace tern

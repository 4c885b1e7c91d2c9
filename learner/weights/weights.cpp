#include "tern/learner/weights/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/batch.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/safetensors.h"
#include "tern/data/formats/weights/weight_file.h"
#include "tern/kernels/check.h"
#include "tern/kernels/parallel_for.h"
#include "tern/learner/weights/write_pth.h"

namespace tern {

namespace {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::span<const uint8_t>;

constexpr std::array<std::pair<StoredType, torch::ScalarType>, 17> kTypes = {{
    {StoredType::boolean, torch::kBool},
    {StoredType::uint8, torch::kByte},
    {StoredType::int8, torch::kChar},
    {StoredType::uint16, torch::kUInt16},
    {StoredType::int16, torch::kShort},
    {StoredType::uint32, torch::kUInt32},
    {StoredType::int32, torch::kInt},
    {StoredType::uint64, torch::kUInt64},
    {StoredType::int64, torch::kLong},
    {StoredType::float8_e4m3, at::kFloat8_e4m3fn},
    {StoredType::float8_e5m2, at::kFloat8_e5m2},
    {StoredType::float16, torch::kHalf},
    {StoredType::bfloat16, torch::kBFloat16},
    {StoredType::float32, torch::kFloat},
    {StoredType::float64, torch::kDouble},
    {StoredType::complex64, torch::kComplexFloat},
    {StoredType::complex128, torch::kComplexDouble},
}};

torch::ScalarType scalar_type(StoredType type) {
  return kTypes[static_cast<size_t>(type)].second;
}

std::optional<StoredType> stored_type(torch::ScalarType type) {
  for (const auto& [stored, scalar] : kTypes) {
    if (scalar == type) return stored;
  }
  return std::nullopt;
}

std::span<uint8_t> bytes_of(const torch::Tensor& dense) {
  return {static_cast<uint8_t*>(dense.data_ptr()), dense.nbytes()};
}

// ---- Reading ----

// Reads each needed storage into a tensor of bytes.
Tensors read_storages(
    const ByteFile& file,
    const StoredWeights& weights,
    const std::vector<size_t>& needed) {
  Tensors storages(weights.storages.size());
  for (const size_t i : needed) {
    const auto size = static_cast<int64_t>(weights.storages[i].size);
    storages[i] = torch::empty({size}, torch::kByte);
  }
  const auto count = static_cast<int64_t>(needed.size());
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const size_t i = needed[static_cast<size_t>(k)];
      read_storage(file, weights.storages[i], bytes_of(storages[i]));
    }
  });
  return storages;
}

// Returns the alignment that each storage's address needs.
std::vector<size_t> alignments(const StoredWeights& weights) {
  std::vector<size_t> alignments(weights.storages.size(), 1);
  for (const StoredTensor& tensor : weights.tensors) {
    size_t& alignment = alignments[tensor.storage];
    alignment = std::max<size_t>(alignment, info_of(tensor.type).bytes);
  }
  return alignments;
}

// As `read_storages`, but returns views of the mapped file, and copies of
// misaligned storages.
Tensors map_storages(
    const ByteFile& file,
    const StoredWeights& weights,
    const std::vector<size_t>& needed) {
  const std::shared_ptr<uint8_t> mapped = file.map(/*is_writable=*/true);
  const std::vector<size_t> alignment = alignments(weights);
  Tensors storages(weights.storages.size());
  for (const size_t i : needed) {
    const StoredBytes& storage = weights.storages[i];
    storages[i] = at::from_blob(
        mapped.get() + storage.begin,
        {static_cast<int64_t>(storage.size)},
        [mapped](void*) {},
        torch::kByte);
    if (storage.begin % alignment[i] != 0) storages[i] = storages[i].clone();
    check_storage(file, storage, bytes_of(storages[i]));
  }
  return storages;
}

// Checks that all bytes are 0 or 1; no other byte is a valid C++ bool.
void check_bools(
    const ByteFile& file,
    const StoredWeights& weights,
    const Tensors& storages) {
  for (const StoredTensor& tensor : weights.tensors) {
    if (tensor.type != StoredType::boolean) continue;
    for (const uint8_t byte : bytes_of(storages[tensor.storage])) {
      if (byte <= 1) continue;
      throw DataError(
          file.path(),
          "holds the boolean tensor " + printable(tensor.name) +
              " with a byte that is neither 0 nor 1. The file is damaged.");
    }
  }
}

// Compares the file with the SHA-256 from the caller or from the .sha256 file.
// Returns false if there is neither.
bool check_whole(const std::filesystem::path& path, std::string expected) {
  if (expected.empty()) expected = sum_beside(path);
  if (expected.empty()) return false;
  TERN_CHECK_VALUE(
      is_sha256(expected),
      "[load_weights] the SHA-256 is {}; expected 64 lower-case hexadecimal "
      "digits, as sha256sum prints them.",
      printable(expected));
  check_sha256_file(path, expected);
  return true;
}

// Checks the SHA-256 in a safetensors file's metadata.
void check_sha256(
    const ByteFile& file,
    const StoredWeights& weights,
    const Tensors& storages) {
  const auto expected = weights.metadata.find(kSafetensorsChecksum);
  if (expected == weights.metadata.end()) return;
  std::vector<size_t> order(storages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    return weights.storages[i].begin;
  });
  Sha256 hash;
  for (const size_t i : order) hash.update(bytes_of(storages[i]));
  if (hash.hex_digest() != expected->second) {
    throw DataError(
        file.path(),
        "has tensors whose SHA-256 differs from its metadata. The file is "
        "damaged. Download or save it again.");
  }
}

torch::Tensor view_of(const torch::Tensor& bytes, const StoredTensor& tensor) {
  torch::Tensor view =
      torch::empty({0}, scalar_type(tensor.type))
          .set_(bytes.storage(), tensor.offset, tensor.shape, tensor.strides);
  if (tensor.conj) view = view.conj();
  return tensor.neg ? view._neg_view() : view;
}

// ---- Writing ----

// Returns the tensor's elements on the CPU, dense. With `keep_strides`, a
// tensor without gaps keeps its memory order; otherwise the result is
// contiguous.
torch::Tensor dense_on_cpu(const torch::Tensor& tensor, bool keep_strides) {
  const torch::Tensor plain =
      tensor.detach().resolve_conj().resolve_neg().to(torch::kCPU);
  return keep_strides && plain.is_non_overlapping_and_dense()
             ? plain
             : plain.contiguous();
}

// Checks the tensors to save and describes them, without their storages.
std::vector<StoredTensor> describe(const StateDict& state, const char* where) {
  std::vector<StoredTensor> tensors;
  for (const auto& item : state) {
    const torch::Tensor& tensor = item.value();
    const auto type =
        tensor.defined() ? stored_type(tensor.scalar_type()) : std::nullopt;
    TERN_CHECK_VALUE(
        type && tensor.layout() == torch::kStrided && !tensor.is_meta(),
        "[{}] the tensor {} is {}; expected a defined, dense tensor of "
        "numbers. Omit it or convert it first.",
        where,
        printable(item.key()),
        tensor.defined() ? tensor.toString() : "undefined");
    tensors.push_back(
        {.name = item.key(), .type = *type, .shape = tensor.sizes().vec()});
  }
  return tensors;
}

}  // namespace

StateDict load_weights(
    const std::filesystem::path& path,
    const LoadWeightsOptions& options) {
  const torch::NoGradGuard no_grad;
  const ByteFile file(path);
  const bool is_whole = check_whole(path, options.sha256);
  const StoredWeights weights = read_weight_header(file, options.key);
  std::vector<size_t> needed;
  needed.reserve(weights.tensors.size());
  for (const StoredTensor& tensor : weights.tensors) {
    needed.push_back(tensor.storage);
  }
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());

  const Tensors storages = options.memory_map
                               ? map_storages(file, weights, needed)
                               : read_storages(file, weights, needed);
  check_bools(file, weights, storages);
  check_sha256(file, weights, storages);
  StateDict state;
  state.unverified = !is_whole &&
                     !weights.metadata.contains(kSafetensorsChecksum) &&
                     std::ranges::any_of(needed, [&](size_t i) {
                       return !weights.storages[i].crc32;
                     });
  for (const StoredTensor& tensor : weights.tensors) {
    state.insert(tensor.name, view_of(storages[tensor.storage], tensor));
  }
  return state;
}

SafetensorsImage::SafetensorsImage(
    const StateDict& state,
    const std::map<std::string, std::string>& metadata,
    const std::filesystem::path& path,
    bool checksum) {
  const std::vector<StoredTensor> tensors = describe(state, "save_safetensors");
  for (const size_t i : safetensors_order(tensors)) {
    tensors_.push_back(dense_on_cpu(state[i].value(), /*keep_strides=*/false));
  }
  std::map<std::string, std::string> all = metadata;
  // The metadata may be copied from a file with different checksums.
  all.erase(kSafetensorsChecksum);
  all.erase(kSafetensorsHeaderChecksum);
  if (checksum) {
    Sha256 hash;
    for (const torch::Tensor& tensor : tensors_) hash.update(bytes_of(tensor));
    all[kSafetensorsChecksum] = hash.hex_digest();
    all[kSafetensorsHeaderChecksum] = safetensors_header_sha256(tensors, all);
  }
  header_ = safetensors_header(tensors, all, path.string());
}

int64_t SafetensorsImage::size() const {
  size_t bytes = header_.size();
  for (const torch::Tensor& tensor : tensors_) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes);
}

std::string SafetensorsImage::sha256() const {
  Sha256 hash;
  hash.update(as_bytes(header_));
  for (const torch::Tensor& tensor : tensors_) hash.update(bytes_of(tensor));
  return hash.hex_digest();
}

void SafetensorsImage::write(const std::filesystem::path& path, bool durable)
    const {
  AtomicFile file(path);
  write(file);
  file.commit(durable);
}

void SafetensorsImage::write(AtomicFile& file) const {
  file.write(header_);
  for (const torch::Tensor& tensor : tensors_) file.write(bytes_of(tensor));
}

void save_safetensors(
    const std::filesystem::path& path,
    const StateDict& state,
    const std::map<std::string, std::string>& metadata,
    const SaveWeightsOptions& options) {
  const SafetensorsImage image(state, metadata, path, options.checksum);
  AtomicFile file(path);
  image.write(file);
  file.commit_with_sum(options.sha256_file, options.durable);
}

void save_pth(
    const std::filesystem::path& path,
    const StateDict& state,
    const SaveWeightsOptions& options) {
  std::vector<StoredTensor> tensors = describe(state, __func__);
  Tensors dense;  // the storages of the file
  std::vector<Bytes> storages;
  // Maps a memory location to its storage, for tensors that have several names.
  std::map<std::tuple<void*, std::vector<int64_t>, StoredType>, size_t> known;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& tensor = state[i].value();
    torch::Tensor plain = dense_on_cpu(tensor, /*keep_strides=*/true);
    tensors[i].strides = plain.strides().vec();
    tensors[i].storage = storages.size();
    if (tensor.is_non_overlapping_and_dense() && !tensor.is_conj() &&
        !tensor.is_neg()) {
      const size_t first =
          known
              .try_emplace(
                  {tensor.data_ptr(), tensors[i].strides, tensors[i].type},
                  storages.size())
              .first->second;
      if (first < storages.size() && storages[first].size() == plain.nbytes()) {
        tensors[i].storage = first;
        continue;
      }
    }
    storages.push_back(bytes_of(plain));
    dense.push_back(std::move(plain));
  }
  write_pth(path, tensors, storages, options.sha256_file, options.durable);
}

std::map<std::string, std::string> safetensors_metadata(
    const std::filesystem::path& path) {
  const ByteFile file(path);
  if (!is_safetensors(file)) {
    throw DataError(
        path,
        "is not a safetensors file; expected a safetensors file, because no "
        "other format has metadata.");
  }
  return read_safetensors_header(file).metadata;
}

}  // namespace tern

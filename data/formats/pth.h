#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tern/data/formats/byte_file.h"
#include "tern/data/formats/pickle.h"
#include "tern/data/formats/stored_tensor.h"

namespace tern {

/// Whether a file begins as `torch.save` begins one: a zip archive, or a
/// pickle, which it wrote before PyTorch 1.6.
bool is_pth(const ByteFile& file);

/// The tensors of a dictionary in a file of Python's `torch.save`, in its
/// order. Entries that are no tensors are left out. No code of the file is run.
///
/// \param key  Which dictionary: "state_dict", "ema/model" for one in another,
///     "/" for the outermost. Empty: the outermost, or the one inside it, that
///     alone has tensors in it.
/// \throws DataError if the file is damaged or cut off, is a TorchScript file,
///     mentions a name outside the allow-list, holds a tensor that reaches
///     beyond its storage, or has no or several dictionaries for `key`.
StoredWeights read_pth(const ByteFile& file, const std::string& key = "");

/// Writes what Python's `torch.load(path, weights_only=True)` gives back as an
/// OrderedDict.
///
/// \param tensors  Views of `storages`.
/// \param durable  Wait until the file is on the disk.
/// \throws DataError if a name is not UTF-8; IoError.
void write_pth(
    const std::filesystem::path& path,
    const std::vector<StoredTensor>& tensors,
    const std::vector<std::span<const uint8_t>>& storages,
    bool durable);

// ---- The steps of read_pth ----

/// The names that a pickle of `torch.save` may mention.
std::span<const std::string_view> torch_names();

/// What `torch.save` puts into a pickle for a storage.
struct StorageRef {
  std::string_view key;
  uint8_t element_bytes = 1;
  uint64_t size = 0;  // bytes
  /// The legacy format has storages that are views of others: of `key`, whose
  /// size is that above, a part.
  uint64_t view_begin = 0, view_size = 0;
};

/// \throws DataError if the value is no storage.
StorageRef storage_ref(
    const Pickle& pickle,
    const Pickle::Value& persistent,
    const std::string& path);

/// The dictionary of tensors that `key` means in what was saved; see
/// `read_pth`. \throws DataError listing those that there are.
const Pickle::Value& choose_state_dict(
    const Pickle& pickle,
    const std::string& key,
    const std::string& path);

/// The tensors of a dictionary, as views of `storages`.
/// \param index  Index of a storage by its key.
std::vector<StoredTensor> tensors_of(
    const Pickle& pickle,
    const Pickle::Value& dict,
    const std::unordered_map<std::string_view, size_t>& index,
    const std::vector<StoredBytes>& storages,
    const std::string& path);

}  // namespace tern

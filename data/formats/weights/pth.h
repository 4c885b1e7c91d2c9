#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/weights/pickle.h"
#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

/// True if the file begins like a file of `torch.save`: a zip archive, or a
/// pickle, the format before PyTorch 1.6.
bool is_pth(const ByteFile& file);

/// Returns the tensors of a dictionary in a file of Python's `torch.save`, in
/// its order. Ignores entries that are not tensors. Executes no code from the
/// file.
///
/// \param key  Selects the dictionary: "state_dict"; "ema/model" if it is
///             nested; "nets/0" if it is in a list or under an integer; "/" for
///             the outermost. Empty: the only dictionary that contains tensors;
///             if there are several, the only one that contains nothing else
///             and has the most tensors. The state of an optimizer does not
///             count.
/// \throws DataError if the file is damaged or truncated, is a TorchScript
///         file, nests dictionaries and lists more than 16 deep, mentions a
///         name that is not allowed, or contains a tensor that extends beyond
///         its storage, or if no dictionary, or several, match `key`.
StoredWeights read_pth(const ByteFile& file, const std::string& key = "");

// ---- The steps of read_pth ----

/// True if a pickle of `torch.save` may mention this name.
bool is_torch_name(std::string_view name);

/// A storage as described by a pickle.
struct PickledStorage {
  uint8_t element_bytes = 1;
  uint64_t size = 0;  // bytes
};

/// Returns the storages that a pickle mentions, by key. The keys are views of
/// the pickle.
/// \throws DataError if a storage is damaged or has two sizes.
std::unordered_map<std::string_view, PickledStorage> storages_in(
    const Pickle& pickle,
    const std::string& path);

/// Index of a storage in a list, by its key.
using StorageIndex = std::unordered_map<std::string_view, size_t>;

/// Returns the dictionary of tensors that `key` selects; see `read_pth`.
/// \throws DataError.
const Pickle::Value& choose_state_dict(
    const Pickle& pickle,
    const std::string& key,
    const std::function<bool(const Pickle::Value&)>& is_tensor,
    const std::string& path);

/// Returns the tensors of the dictionary that `key` selects (see `read_pth`),
/// as views of `storages`.
/// \throws DataError.
std::vector<StoredTensor> state_dict_in(
    const Pickle& pickle,
    const std::string& key,
    const StorageIndex& index,
    const std::vector<StoredBytes>& storages,
    const std::string& path);

}  // namespace tern

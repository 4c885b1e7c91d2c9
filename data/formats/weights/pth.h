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

/// Whether a file begins as `torch.save` begins one: a zip archive, or a
/// pickle, which it wrote before PyTorch 1.6.
bool is_pth(const ByteFile& file);

/// The tensors of a dictionary in a file of Python's `torch.save`, in its
/// order. Entries that are no tensors are left out. No code of the file is run.
///
/// \param key  Which dictionary: "state_dict", "ema/model" for one in another,
///     "nets/0" for one in a list or under an integer, "/" for the outermost.
///     Empty: the one that alone has tensors in it, or alone has nothing else
///     and more of them than any other. An optimizer's state does not count.
/// \throws DataError if the file is damaged or cut off, is a TorchScript file,
///     nests dictionaries and lists more than 16 deep, mentions a name outside
///     the allow-list, holds a tensor that reaches beyond its storage, or has
///     no or several dictionaries for `key`.
StoredWeights read_pth(const ByteFile& file, const std::string& key = "");

// ---- The steps of read_pth ----

/// Whether a pickle of `torch.save` may mention a name.
bool is_torch_name(std::string_view name);

/// What a pickle says of a storage.
struct PickledStorage {
  uint8_t element_bytes = 1;
  uint64_t size = 0;  // bytes
};

/// The storages that a pickle mentions, by their keys, which it holds.
/// \throws DataError if one is damaged or has two sizes.
std::unordered_map<std::string_view, PickledStorage> storages_in(
    const Pickle& pickle,
    const std::string& path);

/// The place of a storage in a list, by its key.
using StorageIndex = std::unordered_map<std::string_view, size_t>;

/// The dictionary of tensors that `key` means, see `read_pth`.
/// \throws DataError.
const Pickle::Value& choose_state_dict(
    const Pickle& pickle,
    const std::string& key,
    const std::function<bool(const Pickle::Value&)>& is_tensor,
    const std::string& path);

/// The tensors of the dictionary that `key` means, see `read_pth`, as views of
/// `storages`. \throws DataError.
std::vector<StoredTensor> state_dict_in(
    const Pickle& pickle,
    const std::string& key,
    const StorageIndex& index,
    const std::vector<StoredBytes>& storages,
    const std::string& path);

}  // namespace tern

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tern/data/formats/pickle.h"
#include "tern/data/formats/stored_tensor.h"

namespace tern {

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

#include <algorithm>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/pth.h"

namespace tern {

namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Value = Pickle::Value;

// These names end in a version number for tensors, but not always for
// parameters.
constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor";
constexpr std::string_view kRebuildTensorV3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kRebuildParameter =
    "torch._utils._rebuild_parameter";
constexpr std::string_view kRebuildFromType =
    "torch._tensor._rebuild_from_type_v2";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kUntypedStorage = "torch.storage.UntypedStorage";

// Allowed names other than storage types and dtypes.
constexpr std::string_view kNames[] = {
    kRebuildTensor,
    "torch._utils._rebuild_tensor_v2",
    kRebuildTensorV3,
    kRebuildParameter,
    "torch._utils._rebuild_parameter_with_state",
    kRebuildFromType,
    kSize,
    kUntypedStorage,
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.device",
    // Names that fastai's Learner.save stores beside the weights.
    "fastcore.foundation.L",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "_codecs.encode"};

std::string_view without_torch(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  return name.starts_with(kTorch) ? name.substr(kTorch.size()) : name;
}

// The reference to a storage that `torch.save` writes into a pickle.
struct StorageRef {
  std::string_view key, type;
  PickledStorage whole = {};
  // In the legacy format a storage may be a view of another storage, `key`.
  uint64_t view_begin = 0, view_size = 0;
};

// Decodes the values of a pickle as `torch.save` writes them.
class Decoder {
 public:
  Decoder(const Pickle& pickle, const std::string& path)
      : pickle_(pickle), path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(path_, what + "; expected a file written by torch.save.");
  }

  bool is_tensor(const Value& value) const {
    const std::string_view name = called(value);
    return name.starts_with(kRebuildTensor) ||
           name.starts_with(kRebuildParameter) || name == kRebuildFromType;
  }

  StorageRef storage(const Value& persistent) const {
    const auto expect = [&](bool is_so) {
      if (!is_so) fail("holds a damaged storage");
    };
    expect(persistent.kind == Kind::persistent);
    // ("storage", type, key, device, elements[, view])
    const Value& id = item(persistent, 0);
    expect(id.kind == Kind::tuple && id.items.size() >= 5);
    const Value &type = item(id, 1), &key = item(id, 2);
    expect(
        item(id, 0).text == "storage" && type.kind == Kind::global &&
        key.kind == Kind::string);
    StorageRef ref{.key = key.text, .type = type.text};
    if (type.text != kUntypedStorage) {
      const auto stored =
          type_named(&StoredTypeInfo::storage, without_torch(type.text));
      expect(stored.has_value());
      ref.whole.element_bytes = info_of(*stored).bytes;
    }
    const uint64_t bytes = ref.whole.element_bytes;
    ref.whole.size = ref.view_size = elements(item(id, 4)) * bytes;
    if (id.items.size() > 5 && item(id, 5).kind != Kind::none) {
      const Value& view = item(id, 5);  // (key, first element, elements)
      ref.view_begin = elements(item(view, 1)) * bytes;
      ref.view_size = elements(item(view, 2)) * bytes;
      expect(
          ref.view_begin <= ref.whole.size &&
          ref.view_size <= ref.whole.size - ref.view_begin);
    }
    return ref;
  }

  StoredTensor tensor(
      const std::string& name,
      const Value& value,
      const StorageIndex& index,
      const std::vector<StoredBytes>& storages) const {
    const auto [how, arguments] = unwrap(value);
    const StorageRef ref = storage(item(*arguments, 0));
    const auto at = index.find(ref.key);
    if (at == index.end()) fail("does not contain a tensor's storage");
    // v3 names the dtype of the elements; earlier versions use the storage's.
    const bool is_v3 = how == kRebuildTensorV3;
    const std::string_view type_name =
        is_v3 ? item(*arguments, 6).text : ref.type;
    const auto type = type_named(
        is_v3 ? &StoredTypeInfo::dtype : &StoredTypeInfo::storage,
        without_torch(type_name));
    if (!type) {
      fail(
          "holds the tensor " + printable(name) + " of the dtype " +
          printable(type_name));
    }
    StoredTensor tensor{
        .name = name,
        .type = *type,
        .shape = integers(item(*arguments, 2)),
        .strides = integers(item(*arguments, 3)),
        .storage = at->second,
        .offset = integer(item(*arguments, 1))};
    // PyTorch stores these two flags by name; a tensor with neither has no
    // entry.
    const size_t metadata = is_v3 ? 7 : 6;
    if (metadata < arguments->items.size()) {
      const Value& said = item(*arguments, metadata);
      tensor.conj = is_true(said, "conj");
      tensor.neg = is_true(said, "neg");
      if ((tensor.conj && *type < StoredType::complex64) ||
          (tensor.neg && *type < StoredType::float16)) {
        fail(
            "holds the conjugate or negative of a tensor whose dtype has none");
      }
    }
    std::string fault = view_fault(tensor, ref.view_size);
    if (fault.empty()) {
      tensor.offset +=
          static_cast<int64_t>(ref.view_begin / info_of(*type).bytes);
      fault = view_fault(tensor, storages[tensor.storage].size);
    }
    if (!fault.empty()) {
      fail("holds the tensor " + printable(name) + ", which " + fault);
    }
    return tensor;
  }

 private:
  const Value& item(const Value& value, size_t i) const {
    if (i >= value.items.size()) fail("holds an incomplete tensor");
    return pickle_[value.items[i]];
  }

  bool is_true(const Value& dict, std::string_view key) const {
    const Value* const value = pickle_.find(dict, key);
    return value != nullptr && value->integer != 0;
  }

  int64_t integer(const Value& value) const {
    if (value.kind != Kind::integer) {
      fail("holds a tensor with a size that is not an integer");
    }
    return value.integer;
  }

  uint64_t elements(const Value& value) const {
    const int64_t count = integer(value);
    if (count < 0 || count > int64_t{1} << 44) {
      fail("holds a storage of " + std::to_string(count) + " elements");
    }
    return static_cast<uint64_t>(count);
  }

  // Reads a tuple of integers, or a torch.Size of one.
  std::vector<int64_t> integers(const Value& value) const {
    const bool is_size = called(value) == kSize;
    const Value& tuple = is_size ? item(item(value, 1), 0) : value;
    if (tuple.kind != Kind::tuple && tuple.kind != Kind::list) {
      fail("holds a tensor whose sizes are not a tuple");
    }
    if (tuple.items.size() > 64) fail("holds a tensor of over 64 dimensions");
    std::vector<int64_t> numbers;
    numbers.reserve(tuple.items.size());
    for (const Id id : tuple.items) numbers.push_back(integer(pickle_[id]));
    return numbers;
  }

  // Returns the name of the called global.
  std::string_view called(const Value& call) const {
    return call.kind == Kind::call ? item(call, 0).text : std::string_view();
  }

  // Returns the _rebuild_tensor inside the wrappers of a parameter or subclass,
  // and its arguments.
  std::pair<std::string_view, const Value*> unwrap(const Value& tensor) const {
    std::string_view name = called(tensor);
    const Value* arguments = &item(tensor, 1);
    for (int wrappers = 0; wrappers < 8 && !name.empty(); ++wrappers) {
      if (name.starts_with(kRebuildTensor)) return {name, arguments};
      const Value& inner = item(*arguments, 0);
      if (name == kRebuildFromType) {  // (function, type, arguments, state)
        name = inner.text;
        arguments = &item(*arguments, 2);
      } else if (!name.starts_with(kRebuildParameter)) {
        break;
      } else {
        name = called(inner);
        if (!name.empty()) arguments = &item(inner, 1);
      }
    }
    fail("holds a tensor that is rebuilt by an unknown function");
  }

  const Pickle& pickle_;
  const std::string& path_;
};

}  // namespace

bool is_torch_name(std::string_view name) {
  const std::string_view type = without_torch(name);
  return std::find(std::begin(kNames), std::end(kNames), name) !=
             std::end(kNames) ||
         (type.size() < name.size() &&
          (type_named(&StoredTypeInfo::storage, type) ||
           type_named(&StoredTypeInfo::dtype, type)));
}

std::unordered_map<std::string_view, PickledStorage> storages_in(
    const Pickle& pickle,
    const std::string& path) {
  const Decoder decoder(pickle, path);
  std::unordered_map<std::string_view, PickledStorage> storages;
  for (const Value& value : pickle.values()) {
    if (value.kind != Kind::persistent) continue;
    const StorageRef ref = decoder.storage(value);
    const auto [at, is_new] = storages.emplace(ref.key, ref.whole);
    if (at->second.size != ref.whole.size) {
      throw DataError(
          path,
          "gives two sizes for one storage. The file is damaged.");
    }
  }
  return storages;
}

std::vector<StoredTensor> state_dict_in(
    const Pickle& pickle,
    const std::string& key,
    const StorageIndex& index,
    const std::vector<StoredBytes>& storages,
    const std::string& path) {
  const Decoder decoder(pickle, path);
  const Value& dict = choose_state_dict(
      pickle,
      key,
      [&](const Value& value) { return decoder.is_tensor(value); },
      path);
  std::vector<StoredTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& name = pickle[dict.items[i]];
    const Value& value = pickle[dict.items[i + 1]];
    if (name.kind != Kind::string || !decoder.is_tensor(value)) continue;
    if (!names.insert(name.text).second) {
      decoder.fail("holds the tensor " + printable(name.text) + " twice");
    }
    tensors.push_back(
        decoder.tensor(std::string(name.text), value, index, storages));
  }
  return tensors;
}

}  // namespace tern

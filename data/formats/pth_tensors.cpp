#include <algorithm>
#include <array>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/pth.h"

namespace tern {

namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor";
constexpr std::string_view kRebuildTensorV2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildTensorV3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kRebuildParameter =
    "torch._utils._rebuild_parameter";
constexpr std::string_view kRebuildParameterWithState =
    "torch._utils._rebuild_parameter_with_state";
constexpr std::string_view kRebuildFromType =
    "torch._tensor._rebuild_from_type_v2";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kUntypedStorage = "torch.storage.UntypedStorage";

constexpr std::string_view kNames[] = {
    "collections.OrderedDict",
    kRebuildTensor,
    kRebuildTensorV2,
    kRebuildTensorV3,
    kRebuildParameter,
    kRebuildParameterWithState,
    kRebuildFromType,
    kSize,
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.device",
    kUntypedStorage,
    "torch.BoolStorage",
    "torch.ByteStorage",
    "torch.CharStorage",
    "torch.ShortStorage",
    "torch.IntStorage",
    "torch.LongStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.FloatStorage",
    "torch.DoubleStorage",
    "torch.ComplexFloatStorage",
    "torch.ComplexDoubleStorage",
    "torch.bool",
    "torch.uint8",
    "torch.int8",
    "torch.uint16",
    "torch.int16",
    "torch.uint32",
    "torch.int32",
    "torch.uint64",
    "torch.int64",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.float16",
    "torch.bfloat16",
    "torch.float32",
    "torch.float64",
    "torch.complex64",
    "torch.complex128",
};

std::string_view without_torch(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  return name.starts_with(kTorch) ? name.substr(kTorch.size()) : name;
}

// Takes the values of one pickle for what `torch.save` meant by them.
class Decoder {
 public:
  Decoder(const Pickle& pickle, const std::string& path)
      : pickle_(pickle), path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(path_, what + "; expected what torch.save writes");
  }

  const Value& item(const Value& value, size_t i) const {
    if (i >= value.items.size()) fail("holds a tensor that lacks a part");
    return pickle_[value.items[i]];
  }

  int64_t integer(const Value& value) const {
    if (value.kind != Kind::integer) {
      fail("holds a tensor with a size that is no integer");
    }
    return value.integer;
  }

  uint64_t size(const Value& value) const {
    const int64_t size = integer(value);
    if (size < 0 || size > int64_t{1} << 44) {
      fail("holds a storage of " + std::to_string(size) + " elements");
    }
    return static_cast<uint64_t>(size);
  }

  // The name and the tuple of arguments of a call.
  std::string_view called(const Value& call) const {
    return call.kind == Kind::call ? item(call, 0).text : std::string_view();
  }

  // A tuple of integers, or torch.Size of one.
  std::vector<int64_t> integers(const Value& value) const {
    if (called(value) == kSize) return integers(item(item(value, 1), 0), 0);
    return integers(value, 0);
  }

  // A tensor in its wrappers, each of which calls with the former.
  bool is_tensor(const Value& value) const {
    const std::string_view name = called(value);
    return name == kRebuildTensor || name == kRebuildTensorV2 ||
           name == kRebuildTensorV3 || name == kRebuildParameter ||
           name == kRebuildParameterWithState || name == kRebuildFromType;
  }

  // The arguments of the _rebuild_tensor inside the wrappers, and its name.
  std::pair<std::string_view, const Value*> unwrap(const Value& tensor) const {
    std::string_view name = called(tensor);
    const Value* arguments = &item(tensor, 1);
    for (int wrappers = 0; wrappers < 8; ++wrappers) {
      if (name == kRebuildParameter || name == kRebuildParameterWithState) {
        const Value& inner = item(*arguments, 0);
        name = called(inner);
        if (name.empty()) break;
        arguments = &item(inner, 1);
      } else if (name == kRebuildFromType) {
        name = item(*arguments, 0).text;
        arguments = &item(*arguments, 2);
      } else if (
          name == kRebuildTensor || name == kRebuildTensorV2 ||
          name == kRebuildTensorV3) {
        return {name, arguments};
      } else {
        break;
      }
    }
    fail("holds a tensor made in an unknown way");
  }

 private:
  std::vector<int64_t> integers(const Value& value, int) const {
    if (value.kind != Kind::tuple && value.kind != Kind::list) {
      fail("holds a tensor whose sizes are no tuple");
    }
    if (value.items.size() > 64) fail("holds a tensor of over 64 dimensions");
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < value.items.size(); ++i) {
      numbers.push_back(integer(item(value, i)));
    }
    return numbers;
  }

  const Pickle& pickle_;
  const std::string& path_;
};

// The dictionaries of tensors in what was saved: the outermost, those in it and
// those in these.
class Finder {
 public:
  struct Found {
    std::string key;
    const Value* dict;
    size_t tensors;
    bool is_whole;  // nothing but tensors in it
  };

  Finder(const Pickle& pickle, const Decoder& decoder)
      : pickle_(pickle), decoder_(decoder) {
    visit("", pickle.root_id(), 0);
  }

  const std::vector<Found>& found() const { return found_; }

 private:
  void visit(const std::string& key, Pickle::Id id, int depth) {
    const Value& dict = pickle_[id];
    if (dict.kind != Kind::dict || !seen_.insert(id).second) return;
    size_t tensors = 0;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const Value& name = pickle_[dict.items[i]];
      if (name.kind != Kind::string) continue;
      tensors += decoder_.is_tensor(pickle_[dict.items[i + 1]]);
      if (depth == 2) continue;
      visit(
          key + (key.empty() ? "" : "/") + std::string(name.text),
          dict.items[i + 1],
          depth + 1);
    }
    if (tensors > 0) {
      found_.push_back(
          {key.empty() ? "/" : key,
           &dict,
           tensors,
           2 * tensors == dict.items.size()});
    }
  }

  const Pickle& pickle_;
  const Decoder& decoder_;
  std::unordered_set<Pickle::Id> seen_;
  std::vector<Found> found_;
};

std::string list_of(const std::vector<Finder::Found>& found) {
  std::string list;
  for (size_t i = 0; i < found.size() && i < 10; ++i) {
    list += (i == 0 ? "" : ", ") + printable(found[i].key) + " (" +
            std::to_string(found[i].tensors) + " tensors)";
  }
  return list + (found.size() > 10 ? ", ..." : "");
}

}  // namespace

std::span<const std::string_view> torch_names() {
  return kNames;
}

StorageRef storage_ref(
    const Pickle& pickle,
    const Value& persistent,
    const std::string& path) {
  const Decoder decoder(pickle, path);
  const auto fail = [&] { decoder.fail("holds a damaged storage"); };
  if (persistent.kind != Kind::persistent) fail();
  // ("storage", type, key, device, elements[, view])
  const Value& id = decoder.item(persistent, 0);
  if (id.kind != Kind::tuple || id.items.size() < 5) fail();
  const Value& type = decoder.item(id, 1);
  const Value& key = decoder.item(id, 2);
  if (decoder.item(id, 0).text != "storage" || type.kind != Kind::global ||
      key.kind != Kind::string) {
    fail();
  }
  StorageRef ref{.key = key.text};
  if (type.text != kUntypedStorage) {
    const auto stored = type_of_storage(without_torch(type.text));
    if (!stored) fail();
    ref.element_bytes = info_of(*stored).bytes;
  }
  ref.size = decoder.size(decoder.item(id, 4)) * ref.element_bytes;
  ref.view_size = ref.size;
  if (id.items.size() > 5 && decoder.item(id, 5).kind != Kind::none) {
    const Value& view = decoder.item(id, 5);  // (key, first element, elements)
    ref.view_begin = decoder.size(decoder.item(view, 1)) * ref.element_bytes;
    ref.view_size = decoder.size(decoder.item(view, 2)) * ref.element_bytes;
    if (ref.view_begin > ref.size ||
        ref.view_size > ref.size - ref.view_begin) {
      fail();
    }
  }
  return ref;
}

const Value& choose_state_dict(
    const Pickle& pickle,
    const std::string& key,
    const std::string& path) {
  const Decoder decoder(pickle, path);
  const Finder finder(pickle, decoder);
  const std::vector<Finder::Found>& found = finder.found();
  if (found.empty()) {
    throw DataError(
        path,
        "holds no dictionary of tensors; expected what "
        "torch.save(model.state_dict(), path) writes");
  }
  // A checkpoint may have a tensor or two beside its one state dict.
  const auto is_whole = [](const Finder::Found& one) { return one.is_whole; };
  const bool has_one_whole =
      std::count_if(found.begin(), found.end(), is_whole) == 1;
  for (const Finder::Found& one : found) {
    if (key.empty() ? found.size() == 1 || (has_one_whole && one.is_whole)
                    : one.key == key) {
      return *one.dict;
    }
  }
  throw DataError(
      path,
      key.empty() ? "holds several dictionaries of tensors: " + list_of(found) +
                        ". Name one as the key"
                  : "holds no dictionary of tensors " + printable(key) +
                        "; expected one of " + list_of(found));
}

std::vector<StoredTensor> tensors_of(
    const Pickle& pickle,
    const Value& dict,
    const std::unordered_map<std::string_view, size_t>& index,
    const std::vector<StoredBytes>& storages,
    const std::string& path) {
  const Decoder decoder(pickle, path);
  std::vector<StoredTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& key = pickle[dict.items[i]];
    const Value& value = pickle[dict.items[i + 1]];
    if (key.kind != Kind::string || !decoder.is_tensor(value)) continue;
    StoredTensor tensor{.name = std::string(key.text)};
    if (!names.insert(key.text).second) {
      decoder.fail("holds the tensor " + printable(tensor.name) + " twice");
    }

    const auto [how, arguments] = decoder.unwrap(value);
    const Value& persistent = decoder.item(*arguments, 0);
    const StorageRef ref = storage_ref(pickle, persistent, path);
    const auto at = index.find(ref.key);
    if (at == index.end()) decoder.fail("lacks the storage of a tensor");
    tensor.storage = at->second;
    // v3 names the type of the elements; before, it was the storage's.
    const std::string_view name =
        how == kRebuildTensorV3
            ? decoder.item(*arguments, 6).text
            : decoder.item(decoder.item(persistent, 0), 1).text;
    const std::optional<StoredType> type =
        how == kRebuildTensorV3 ? type_of_dtype(without_torch(name))
                                : type_of_storage(without_torch(name));
    if (!type) {
      decoder.fail(
          "holds the tensor " + printable(tensor.name) + " of the type " +
          printable(name));
    }
    tensor.type = *type;
    tensor.offset = decoder.integer(decoder.item(*arguments, 1));
    tensor.shape = decoder.integers(decoder.item(*arguments, 2));
    tensor.strides = decoder.integers(decoder.item(*arguments, 3));
    std::string fault = view_fault(tensor, ref.view_size);
    if (fault.empty()) {
      tensor.offset +=
          static_cast<int64_t>(ref.view_begin / info_of(*type).bytes);
      fault = view_fault(tensor, storages[tensor.storage].size);
    }
    if (!fault.empty()) {
      decoder.fail(
          "holds the tensor " + printable(tensor.name) + ", which " + fault);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace tern

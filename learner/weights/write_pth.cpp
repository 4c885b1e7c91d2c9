#include "tern/learner/weights/write_pth.h"

#include <caffe2/serialize/inline_container.h>
#include <exception>
#include <string>
#include <string_view>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// Pickle opcodes, named as in CPython's Lib/pickletools.py.
constexpr uint8_t kProto = 0x80, kNewFalse = 0x89, kLong1 = 0x8a, kBinInt = 'J',
                  kBinUnicode = 'X', kGlobal = 'c', kMark = '(', kTuple = 't',
                  kEmptyTuple = ')', kBinPersId = 'Q', kReduce = 'R',
                  kSetItems = 'u', kStop = '.';

class StateDictPickle {
 public:
  explicit StateDictPickle(const std::string& path) : path_(path) {
    op(kProto);
    text_ += '\x02';
    empty_ordered_dict();
    op(kMark);
  }

  void add(const StoredTensor& tensor, uint64_t storage_bytes) {
    const StoredTypeInfo& type = info_of(tensor.type);
    // True for dtypes that never had a storage class in Python.
    const bool is_new = type.storage.empty();
    string(tensor.name);
    global(
        "torch._utils",
        is_new ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    op(kMark);
    op(kMark);
    string("storage");
    global(
        is_new ? "torch.storage" : "torch",
        is_new ? "UntypedStorage" : type.storage);
    string(std::to_string(tensor.storage));
    string("cpu");
    integer(static_cast<int64_t>(storage_bytes / (is_new ? 1 : type.bytes)));
    op(kTuple);
    op(kBinPersId);
    integer(tensor.offset);
    tuple(tensor.shape);
    tuple(tensor.strides);
    op(kNewFalse);         // requires_grad
    empty_ordered_dict();  // hooks
    if (is_new) global("torch", type.dtype);
    op(kTuple);
    op(kReduce);
  }

  std::string finish() {
    op(kSetItems);
    op(kStop);
    return std::move(text_);
  }

 private:
  void op(uint8_t code) { text_ += static_cast<char>(code); }
  void number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      text_ += static_cast<char>(value >> (8 * i));
    }
  }
  void integer(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    if (value == static_cast<int32_t>(value)) {
      op(kBinInt);
      number(bits, 4);
    } else {
      op(kLong1);
      number(8, 1);
      number(bits, 8);
    }
  }
  void string(std::string_view value) {
    if (!is_utf8(value)) {
      throw DataError(path_, "cannot hold a name that is not UTF-8.");
    }
    op(kBinUnicode);
    number(value.size(), 4);
    text_ += value;
  }
  void global(std::string_view module, std::string_view name) {
    op(kGlobal);
    text_ += module;
    text_ += '\n';
    text_ += name;
    text_ += '\n';
  }
  void tuple(const std::vector<int64_t>& values) {
    op(kMark);
    for (const int64_t value : values) integer(value);
    op(kTuple);
  }
  void empty_ordered_dict() {
    global("collections", "OrderedDict");
    op(kEmptyTuple);
    op(kReduce);
  }

  const std::string& path_;
  std::string text_;
};

}  // namespace

void write_pth(
    const std::filesystem::path& path,
    const std::vector<StoredTensor>& tensors,
    const std::vector<std::span<const uint8_t>>& storages,
    bool sha256_file,
    bool durable) {
  const std::string name = path.string();
  StateDictPickle pickle(name);
  for (const StoredTensor& tensor : tensors) {
    pickle.add(tensor, storages[tensor.storage].size());
  }
  AtomicFile file(path);
  std::exception_ptr error;  // must not pass through the zip writer's C code
  const auto write = [&](const void* bytes, size_t size) {
    try {
      if (!error) file.write({static_cast<const uint8_t*>(bytes), size});
    } catch (...) {
      error = std::current_exception();
    }
    return size;
  };
  caffe2::serialize::PyTorchStreamWriter zip(write);
  const std::string program = pickle.finish();
  zip.writeRecord("data.pkl", program.data(), program.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    const std::string key = "data/" + std::to_string(i);
    zip.writeRecord(key, storages[i].data(), storages[i].size());
  }
  zip.writeRecord("byteorder", "little", 6);
  zip.writeEndOfFile();
  if (error) std::rethrow_exception(error);
  file.commit_with_sum(sha256_file, durable);
}

}  // namespace tern

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

/// In the metadata, where the writer wished it: the SHA-256 of all that comes
/// after the header, in hexadecimal.
inline constexpr const char* kSafetensorsChecksum = "tern.sha256";

/// The SHA-256 of all that the header says beside: the metadata but this entry,
/// and name, type and shape of each tensor.
inline constexpr const char* kSafetensorsHeaderChecksum = "tern.header";

/// That sum. Of each text it takes the number of bytes, a colon and the bytes:
/// of keys and values in the keys' order, then, for each tensor in the header's
/// order, of its name, its type ("F32") and its shape ("2,3").
std::string safetensors_header_sha256(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata);

/// Whether a file begins as a safetensors file does.
bool is_safetensors(const ByteFile& file);

/// What the header of a safetensors file says, in its order: one contiguous
/// tensor in each storage.
///
/// \param max_header_bytes  The format itself allows 100 MB.
/// \throws DataError naming the fault: a header that reaches beyond the file or
///         the limit, does not begin with '{', is not strict JSON in UTF-8, has
///         a key twice or an unknown one; a type that is unknown; a shape whose
///         size overflows or differs from its bytes; tensors that overlap, or
///         leave a hole or bytes at the end; a header with another sum than its
///         metadata say.
///
/// Source: github.com/huggingface/safetensors, "Format".
StoredWeights read_safetensors_header(
    const ByteFile& file,
    uint64_t max_header_bytes = uint64_t{16} << 20);

/// The order in which a safetensors file holds the tensors: largest elements
/// first, so that each lies aligned. Indices of `tensors`.
std::vector<size_t> safetensors_order(const std::vector<StoredTensor>& tensors);

/// The bytes that come before the tensors: the header, and its length. It names
/// the tensors as they are given; of them, name, type and shape count.
///
/// \throws DataError naming `path` if a name or text is not UTF-8, a tensor is
///         called "__metadata__" or of a type that the format does not know, or
///         the header becomes longer than 100 MB.
std::string safetensors_header(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::string& path);

}  // namespace tern

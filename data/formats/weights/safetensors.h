#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/weights/stored_tensor.h"

namespace tern {

/// Optional metadata entry: SHA-256, in hexadecimal, of all bytes after the
/// header.
inline constexpr const char* kSafetensorsChecksum = "tern.sha256";

/// Metadata entry: SHA-256 of the rest of the header, that is, all other
/// metadata and the name, dtype and shape of each tensor.
inline constexpr const char* kSafetensorsHeaderChecksum = "tern.header";

/// Computes the "tern.header" checksum. Each text is hashed as its number of
/// bytes, a colon and its bytes: keys and values in the order of the keys,
/// then, for each tensor in the order of the header, its name, its dtype
/// ("F32") and its shape ("2,3").
std::string safetensors_header_sha256(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata);

/// True if the file begins like a safetensors file.
bool is_safetensors(const ByteFile& file);

/// Reads the header of a safetensors file, in its order: one contiguous tensor
/// in each storage.
///
/// \param max_header_bytes  The format itself allows 100 MB.
/// \throws DataError that names the problem: a header that extends beyond the
///         file or the limit, does not begin with '{', is not strict JSON in
///         UTF-8, or has a duplicate or an unknown key; an unknown dtype; a
///         shape whose size overflows or does not match its bytes; tensors that
///         overlap, or leave a gap or bytes at the end; a header whose checksum
///         differs from the one in its metadata.
///
/// Source: github.com/huggingface/safetensors, "Format".
StoredWeights read_safetensors_header(
    const ByteFile& file,
    uint64_t max_header_bytes = uint64_t{16} << 20);

/// Returns the order of the tensors in a safetensors file, as indices of
/// `tensors`: largest elements first, so that each tensor is aligned.
std::vector<size_t> safetensors_order(const std::vector<StoredTensor>& tensors);

/// Returns the bytes before the tensors: the header and its length. The tensors
/// keep their order; only name, dtype and shape are used.
///
/// \throws DataError that names `path` if a name or text is not UTF-8, a tensor
///         is named "__metadata__" or has a dtype that the format does not
///         support, or the header is longer than 100 MB.
std::string safetensors_header(
    const std::vector<StoredTensor>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::string& path);

}  // namespace tern

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tern {

/// Where a field of a struct lies.
using JsonField = std::variant<
    bool*,
    int64_t*,
    double*,
    std::string*,
    std::vector<int64_t>*,
    std::vector<double>*,
    std::vector<std::string>*>;

/// The fields of a struct by name, listed once to be both written and read:
///
///   JsonFields fields_of(ResNetOptions& options) {
///     return {{"num_classes", &options.num_classes},
///             {"zero_init_residual", &options.zero_init_residual}};
///   }
using JsonFields = std::vector<std::pair<std::string, JsonField>>;

/// {"num_classes": 10, "zero_init_residual": false}
std::string to_json(const JsonFields& fields);

/// Reads an object into the fields; one that it has not stays as it is.
/// \param where  For error messages, such as a file.
/// \throws DataError for a name that is no field, or a value that is not of the
///         field's type; some fields may then have been read.
void read_json(
    std::string_view json,
    const JsonFields& fields,
    const std::string& where);

}  // namespace tern

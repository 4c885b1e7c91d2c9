#include "tern/data/formats/samples/npy.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/npy_bytes.h"

namespace tern::npy_test {
namespace {

std::string error_for(const std::string& header, size_t value_bytes) {
  return error_of<DataError>([&] {
    parse_npy(npy_bytes(header, std::string(value_bytes, '\0')), "a.npy");
  });
}

TEST(Npy, ReadsDtypeShapeAndValues) {
  const auto bytes = npy_bytes(
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
      std::string(24, 'v'));
  const NpyArray array = parse_npy(bytes, "a.npy");
  EXPECT_EQ(array.kind, 'f');
  EXPECT_EQ(array.item_bytes, 4);
  EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(array.values.size(), 24u);
  EXPECT_EQ(array.values[0], 'v');
}

TEST(Npy, ReadsScalarsVectorsAndEmptyArrays) {
  const auto shape_of = [](const std::string& shape, size_t bytes) {
    const auto file = npy_bytes(
        "{\"shape\": " + shape + ", 'descr': '|u1', 'fortran_order': False}",
        std::string(bytes, 'x'));
    return parse_npy(file, "a.npy").shape;
  };
  EXPECT_EQ(shape_of("()", 1), std::vector<int64_t>{});
  EXPECT_EQ(shape_of("(7,)", 7), std::vector<int64_t>{7});
  EXPECT_EQ(shape_of("(0, 7)", 0), (std::vector<int64_t>{0, 7}));
}

TEST(Npy, ReadsNewerVersions) {
  auto bytes = npy_bytes(
      "{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}",
      std::string(16, 'x'));
  bytes[6] = 3;
  bytes.insert(bytes.begin() + 10, {0, 0});
  EXPECT_EQ(parse_npy(bytes, "a.npy").item_bytes, 16);
}

TEST(Npy, RejectsUnsupportedArrays) {
  const auto with = [](const std::string& type, const std::string& rest) {
    return error_for("{'descr': " + type + ", " + rest + "}", 8);
  };
  const std::string rest = "'fortran_order': False, 'shape': (2,)";
  for (const char* type :
       {"'>f4'",
        "'|O'",
        "'<U4'",
        "[('a', '<f4')]",
        "'<f3'",
        "'<f4 f8'",
        "'<16'"}) {
    const std::string error = with(type, rest);
    EXPECT_NE(error.find("a.npy"), error.npos) << error;
  }
  const auto says = [](const std::string& error, const char* words) {
    EXPECT_NE(error.find(words), error.npos) << error;
  };
  says(with("'<f4'", "'fortran_order': True, 'shape': (2,)"), "C order");
  says(with("'<f4'", "'fortran_order': False, 'shape': (3,)"), "8 bytes");
  says(
      with("'<f4'", "'fortran_order': False, 'shape': (-2,)"),
      "shape': (-2,)");
  says(with("'<f4'", "'shape': (2,)"), "with the header");
  says(with("'<f4'", rest + ", 'shape': (2,)"), "with the header");
  says(
      with("'<f4'", "'fortran_order': False, 'shape': (99999999999999999,)"),
      "with the header");
}

TEST(Npy, RejectsEveryTruncation) {
  const auto whole = npy_bytes(
      "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}",
      std::string(16, 'x'));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<uint8_t> cut(
        whole.begin(),
        whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(parse_npy(cut, "a.npy"), DataError) << size;
  }
}

}  // namespace
}  // namespace tern::npy_test

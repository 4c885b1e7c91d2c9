#include "tern/data/fingerprint.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::fingerprint_test {
namespace {

namespace fs = std::filesystem;

TensorDataset numbers(float last, int64_t size = 100) {
  torch::Tensor x = torch::arange(size).to(torch::kFloat);
  x[0] = last;
  return {{x}, {torch::zeros(size)}};
}

// A dataset whose samples are files that must not be read.
class Files final : public Dataset {
 public:
  explicit Files(std::vector<fs::path> files) : files_(std::move(files)) {}
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override {
    ADD_FAILURE() << "a file was read";
    return {};
  }
  std::string describe(int64_t index) const override {
    return files_.at(index).string();
  }

 private:
  std::vector<fs::path> files_;
};

TEST(Fingerprint, DistinguishesTensorsOfTheSameSize) {
  EXPECT_EQ(fingerprint(numbers(1)), fingerprint(numbers(1)));
  EXPECT_NE(fingerprint(numbers(1)), fingerprint(numbers(2)));
  EXPECT_NE(fingerprint(numbers(1)), fingerprint(numbers(1, 101)));
}

TEST(Fingerprint, CoversSamplesOverTheWholeLength) {
  torch::Tensor x = torch::zeros(100);
  const TensorDataset before({x.clone()}, {torch::zeros(100)});
  x.slice(0, 50, 100).fill_(1);
  EXPECT_NE(
      fingerprint(before),
      fingerprint(TensorDataset({x}, {torch::zeros(100)})));
}

TEST(Fingerprint, OfFilesDependsOnTheirNamesAndSizesButNotOnTheirLocation) {
  const TempFolder folder;
  const auto files = [&](const char* root, const char* name, size_t bytes) {
    const fs::path cat = folder / root / "cat";
    fs::create_directories(cat);
    write_file(cat / name, std::string(bytes, 'x'));
    return Files({cat / name});
  };
  const std::string first = fingerprint(files("a", "1.png", 10));
  EXPECT_EQ(first, fingerprint(files("moved", "1.png", 10)));
  EXPECT_NE(first, fingerprint(files("b", "2.png", 10)));
  EXPECT_NE(first, fingerprint(files("c", "1.png", 11)));
}

}  // namespace
}  // namespace tern::fingerprint_test

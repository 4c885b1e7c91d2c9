#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/decoders.h"

namespace tern::quiet_cerr_test {
namespace {

TEST(QuietCerr, CapturesWhatThisThreadWrites) {
  testing::internal::CaptureStderr();
  {
    const QuietCerr words;
    std::cerr << "kept " << 7 << std::endl;
    EXPECT_EQ(words.text(), "kept 7\n");
  }
  std::cerr << "seen";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "seen");
}

TEST(QuietCerr, DoesNotCaptureOtherThreads) {
  testing::internal::CaptureStderr();
  {
    const QuietCerr words;
    std::thread([] { std::cerr << "other" << 'c' << std::flush; }).join();
    EXPECT_EQ(words.text(), "");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "otherc");
}

TEST(QuietCerr, LimitsTheLengthOfCapturedText) {
  const QuietCerr words;
  for (int i = 0; i < 1000; ++i) std::cerr << "0123456789";
  EXPECT_EQ(words.text().size(), 4096u);
}

TEST(QuietCerr, RestoresTheBuffer) {
  std::streambuf* const before = std::cerr.rdbuf();
  { const QuietCerr words; }
  EXPECT_EQ(std::cerr.rdbuf(), before);
  // A buffer installed in the meantime is kept.
  std::ostringstream own;
  {
    const QuietCerr words;
    std::cerr.rdbuf(own.rdbuf());
  }
  EXPECT_EQ(std::cerr.rdbuf(), own.rdbuf());
  std::cerr.rdbuf(before);
}

// Row I25: OpenCV's decoders write to stderr regardless of its log level.
TEST(QuietCerr, NoDamagedImageWritesToStderr) {
  std::mt19937 random(1);
  testing::internal::CaptureStderr();
  int errors = 0, told = 0;
  for (const char* suffix : {".tiff", ".webp", ".bmp"}) {
    const std::vector<uint8_t> whole = encode(random_image(40, 50), suffix);
    for (int i = 0; i < 300; ++i) {
      std::vector<uint8_t> bytes = whole;
      for (int k = 0; k < 3; ++k) {
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      }
      if (i % 3 == 0) bytes.resize(8 + random() % (bytes.size() - 8));
      try {
        decode_image(bytes, "damaged");
      } catch (const DataError& error) {
        ++errors;
        const std::string text = error.what();
        if (text.find("cannot decode it: ") != std::string::npos) ++told;
      }
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(errors, 200);
  EXPECT_GT(told, 0);  // errors include OpenCV's message
}

}  // namespace
}  // namespace tern::quiet_cerr_test

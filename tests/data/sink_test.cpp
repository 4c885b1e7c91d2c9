#include "tern/data/sink.h"

#include <csignal>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tern::sink_test {
namespace {

std::string written_to(std::FILE* file) {
  std::string text(10000, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(Sink, WritesPlainLinesWhereThereIsNoTerminal) {
  std::FILE* const file = std::tmpfile();
  {
    const Sink sink = terminal(file);
    sink->line("epoch  train_loss");
    sink->progress({.batch = 1, .batches = 2});
    sink->line("0      0.5");
  }
  EXPECT_EQ(written_to(file), "epoch  train_loss\n0      0.5\n");
  std::fclose(file);
}

TEST(Sink, SilentSaysNothing) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Sink sink = silent();
  sink->line("a");
  sink->warning("b");
  sink->progress({});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Sink, SurvivesAClosedStream) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::FILE* const file = fdopen(ends[1], "w");
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  close(ends[0]);
  const Sink sink = terminal(file);
  sink->line("into the void");
  sink->progress({});
  std::fclose(file);
  std::signal(SIGPIPE, old);
}

}  // namespace
}  // namespace tern::sink_test

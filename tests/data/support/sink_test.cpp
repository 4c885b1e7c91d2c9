#include "tern/data/support/sink.h"

#include <csignal>
#include <cstdlib>
#include <pty.h>
#include <string>
#include <sys/ioctl.h>
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

TEST(Sink, RedrawsItsProgressWithinTheTerminalsColumns) {
  for (const unsigned short columns : {120, 50, 30}) {
    winsize size{.ws_row = 24, .ws_col = columns};
    int reader = -1, writer = -1;
    ASSERT_EQ(openpty(&reader, &writer, nullptr, nullptr, &size), 0);
    setenv("TERM", "xterm", 1);
    std::FILE* const file = fdopen(writer, "w");
    Sink sink = terminal(file);
    sink->progress(
        {.epoch = 9,
         .epochs = 10,
         .batch = 999,
         .batches = 1000,
         .smooth_loss = 0.12345,
         .eta_seconds = 65});
    std::string text(1000, '\0');
    text.resize(read(reader, text.data(), text.size()));
    const std::string drawn = text.substr(std::string("\r\033[K").size());
    EXPECT_LT(drawn.size(), columns) << drawn;
    EXPECT_TRUE(drawn.starts_with("epoch 10/10 train")) << drawn;
    EXPECT_EQ(drawn.find('[') != std::string::npos, columns == 120) << drawn;
    sink.reset();  // before its stream
    std::fclose(file);
    close(reader);
  }
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

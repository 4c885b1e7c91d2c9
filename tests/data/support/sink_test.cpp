#include "tern/data/support/sink.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <pty.h>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace tern::sink_test {
namespace {

std::string written_to(std::FILE* file) {
  std::string text(10000, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(Sink, WritesPlainLinesWithoutATerminal) {
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

// A terminal with this many columns.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{.ws_row = 24, .ws_col = columns};
    int writer = -1;
    EXPECT_EQ(openpty(&reader_, &writer, nullptr, nullptr, &size), 0);
    file_ = fdopen(writer, "w");
    setenv("TERM", "xterm", 1);
    unsetenv("COLUMNS");
  }
  ~Terminal() {
    std::fclose(file_);
    close(reader_);
    unsetenv("COLUMNS");
  }
  Terminal(const Terminal&) = delete;

  std::FILE* file() { return file_; }
  std::string shown() {
    std::string text(1000, '\0');
    text.resize(read(reader_, text.data(), text.size()));
    return text;
  }

 private:
  int reader_ = -1;
  std::FILE* file_ = nullptr;
};

TEST(Sink, CanBeAFunction) {
  std::vector<std::string> said;
  const Sink sink = [&](const std::string& line) { said.push_back(line); };
  sink->line("a");
  sink->warning("b");
  sink->progress({.batch = 1, .batches = 2});
  EXPECT_EQ(said, (std::vector<std::string>{"a", "warning: b"}));
  EXPECT_EQ(sink->columns(), std::nullopt);
}

TEST(Sink, IsEmptyWithoutAnObjectOrAFunction) {
  EXPECT_FALSE(Sink());
  EXPECT_FALSE(Sink(nullptr));
  EXPECT_FALSE(Sink(std::shared_ptr<SinkImpl>()));
  EXPECT_FALSE(Sink(std::function<void(const std::string&)>()));
  EXPECT_TRUE(Sink() == nullptr);
  EXPECT_TRUE(silent());
}

TEST(Sink, SharesAnObjectOfADerivedClass) {
  struct Last final : SinkImpl {
    void line(const std::string& text) override { last = text; }
    std::string last;
  };
  const auto last = std::make_shared<Last>();
  const Sink sink = last;
  const Sink copy = sink;
  copy->warning("b");
  EXPECT_EQ(last->last, "warning: b");
  EXPECT_EQ(copy, sink);
  EXPECT_EQ(copy.get(), last.get());
  EXPECT_EQ(sink.or_terminal(), sink);
}

TEST(Sink, FallsBackToTheTerminalIfEmpty) {
  testing::internal::CaptureStdout();
  Sink().or_terminal()->line("a");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\n");
}

TEST(Sink, HasOneProgressLineForAllOfStdout) {
  const Sink first = terminal();
  EXPECT_EQ(first, terminal());
  EXPECT_NE(first, terminal(stderr));
}

TEST(Sink, UsesColumnsOfTheEnvironmentThenOfTheTerminalThen80) {
  std::FILE* const file = std::tmpfile();
  {
    Terminal narrow(50), unknown(0);
    EXPECT_EQ(terminal(narrow.file())->columns(), 50);
    EXPECT_EQ(terminal(unknown.file())->columns(), 80);
    setenv("COLUMNS", "132", 1);
    EXPECT_EQ(terminal(narrow.file())->columns(), 132);
    EXPECT_EQ(terminal(file)->columns(), std::nullopt);
    for (const char* nonsense : {"", "0", "-5", "wide", "80x"}) {
      setenv("COLUMNS", nonsense, 1);
      EXPECT_EQ(terminal(narrow.file())->columns(), 50) << nonsense;
    }
  }
  std::fclose(file);
}

TEST(Sink, RedrawsItsProgressWithinTheTerminalsColumns) {
  for (const unsigned short columns : {120, 50, 30}) {
    Terminal window(columns);
    const Sink sink = terminal(window.file());
    sink->progress(
        {.epoch = 9,
         .epochs = 10,
         .batch = 999,
         .batches = 1000,
         .smooth_loss = 0.12345,
         .eta_seconds = 65});
    const std::string drawn =
        window.shown().substr(std::string("\r\033[K").size());
    EXPECT_LT(drawn.size(), columns) << drawn;
    EXPECT_TRUE(drawn.starts_with("epoch 10/10 train")) << drawn;
    EXPECT_EQ(drawn.find('[') != std::string::npos, columns == 120) << drawn;
  }
}

TEST(Sink, SilentWritesNothing) {
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

TEST(Sink, SurvivesAFullDisk) {
  std::FILE* const file = std::fopen("/dev/full", "w");
  if (file == nullptr) GTEST_SKIP() << "/dev/full does not exist";
  std::setvbuf(file, nullptr, _IONBF, 0);
  const Sink sink = terminal(file);
  EXPECT_NO_THROW(sink->line("into the void"));
  EXPECT_NO_THROW(sink->progress({}));
  std::fclose(file);
}

}  // namespace
}  // namespace tern::sink_test

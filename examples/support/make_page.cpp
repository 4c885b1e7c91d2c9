// Makes the page of a program that knows nothing of pages, after it has run:
//
//   make_page --command mnist "Handwritten digits" examples/mnist.cpp
//     printed.txt losses.svg
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/data/support/error_text.h>

#include "../notebook.h"
#include "../options.h"

int main(int argc, char** argv) try {
  std::string title, command;
  std::filesystem::path source, output;
  std::vector<std::filesystem::path> plots;
  tern::examples::Options app("Makes the page of a program, in TERN_PAGES");
  app.add_option("--command", command, "what started the program")->required();
  app.add_option("title", title)->required();
  app.add_option("source", source, "the program's code")->required();
  app.add_option("output", output, "file with what it printed")->required();
  app.add_option("plots", plots, "SVG files that it drew");
  app.read(argc, argv);
  tern::examples::write_page(title, source, output, plots, command);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}

#pragma once

#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace tern {

struct ProgramResult {
  int code = -1;
  std::string output;  // and errors

  bool says(const std::string& words) const {
    return output.find(words) != std::string::npos;
  }
};

/// Runs a command line of the shell.
inline ProgramResult run_program(const std::string& command) {
  ProgramResult result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) {
    result.output.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace tern

#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>

namespace tern {

struct ProgramResult {
  int code = -1;
  std::string output;  // and stderr

  bool says(const std::string& words) const {
    return output.find(words) != std::string::npos;
  }
};

/// Start of the command line of a program of this build. Includes the emulator
/// if the build is for a different processor.
inline std::string program_command(const std::string& program) {
  const char* emulator = std::getenv("TERN_EMULATOR");
  return emulator ? std::string(emulator) + " " + program : program;
}

/// Runs a shell command.
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

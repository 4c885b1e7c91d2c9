#include "tern/data/message.h"

#include <cstdio>
#include <mutex>

namespace tern {

namespace {

struct Hook {
  std::mutex mutex;
  MessageHandler handler;
};

// Never destroyed, so that threads may still speak while the program ends.
Hook& hook() {
  static Hook* const hook = new Hook;
  return *hook;
}

}  // namespace

void set_message_handler(MessageHandler handler) {
  const std::lock_guard lock(hook().mutex);
  hook().handler = std::move(handler);
}

void message(const std::string& line) {
  const std::lock_guard lock(hook().mutex);
  if (hook().handler) {
    hook().handler(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace tern

#pragma once

#include <functional>
#include <string>

namespace tern {

/// Takes one line of text for people, without its newline.
using MessageHandler = std::function<void(const std::string& line)>;

/// Replaces what `message` does with a line, for the whole program; a null
/// handler brings back the default, a line on stderr.
void set_message_handler(MessageHandler handler);

/// Tells the user something that is no error: which data is used, what is
/// fetched. Safe to call from many threads; the handler sees one line at a
/// time and may not call `message` itself.
void message(const std::string& line);

}  // namespace tern

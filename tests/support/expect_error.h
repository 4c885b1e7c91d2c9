#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <typeinfo>

#include <gtest/gtest.h>

namespace tern {

/// Runs `action`, which must throw an `Error`, and returns its message.
template <class Error, class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw " << typeid(error).name() << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "threw nothing; expected " << typeid(Error).name();
  return "";
}

/// Expects that `action` throws an `Error` whose message contains all `words`.
template <class Error, class Action>
void expect_error(
    Action&& action,
    std::initializer_list<std::string_view> words) {
  const std::string error = error_of<Error>(action);
  for (const std::string_view word : words) {
    EXPECT_NE(error.find(word), std::string::npos)
        << "expected \"" << word << "\" in: " << error;
  }
}

}  // namespace tern

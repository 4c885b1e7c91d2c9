#pragma once

/// Tern's version, which CMake reads from this file. As a number, 1.2.3 is
/// 10203:
///
///   #if TERN_VERSION >= 100
///
/// Before 1.0 a minor version may change names, and CHANGELOG.md says which; a
/// patch version never does.
#define TERN_VERSION_MAJOR 0
#define TERN_VERSION_MINOR 1
#define TERN_VERSION_PATCH 0
#define TERN_VERSION \
  (10000 * TERN_VERSION_MAJOR + 100 * TERN_VERSION_MINOR + TERN_VERSION_PATCH)
#define TERN_VERSION_STRING "0.1.0"

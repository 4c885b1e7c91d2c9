#pragma once

#include <cstdint>

namespace tern {

struct GradScalerOptions;

// Private to GradScaler. Each throws a c10::ValueError that names the option.

void check_factors(double growth, double backoff, int64_t interval);
/// \param name  Of the number, as the sentence begins with it.
void check_scale(const char* name, double scale);
void check_options(const GradScalerOptions& options);

}  // namespace tern

// The compiled half of the fmt whose headers come with LibTorch.
#include <fmt/format-inl.h>

// The templates that fmt's headers declare and leave to this file.
FMT_BEGIN_NAMESPACE
#if FMT_VERSION < 120000  // that of LibTorch 2.9
using detail::locale_ref;
#endif
template FMT_API locale_ref::locale_ref(const std::locale&);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
namespace detail {

template FMT_API auto dragonbox::to_decimal(float) noexcept
    -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept
    -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref)
    -> thousands_sep_result<char>;
template FMT_API auto thousands_sep_impl(locale_ref)
    -> thousands_sep_result<wchar_t>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API auto decimal_point_impl(locale_ref) -> wchar_t;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void buffer<wchar_t>::append(const wchar_t*, const wchar_t*);

}  // namespace detail
FMT_END_NAMESPACE

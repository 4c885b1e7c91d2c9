#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#ifdef TERN_WITH_ARCHIVES
#include "tern/data/formats/samples/png.h"
#endif
#include "tern/learner/report/plot.h"
#include "tern/learner/report/plot_drawing.h"

namespace tern {

namespace {

// The glyphs of the characters 32 to 126. Pairs of characters are coordinates
// relative to 'R': first the left and right bound, then points of the pen's
// way; " R" lifts the pen.
//
// These are the Hershey Fonts, simplex Roman, which may be used by anyone for
// any purpose with these acknowledgements: The Hershey Fonts were originally
// created by Dr. A. V. Hershey while working at the U. S. National Bureau of
// Standards. The format of the font data was originally created by James Hurt,
// Cognition, Inc., 900 Technology Park Drive, Billerica, MA 01821. The space is
// narrower here.
// clang-format off
constexpr std::array<std::string_view, 95> kGlyphs = {
  R"(MW)",
  R"(MWRFRT RRYQZR[SZRY)",
  R"(JZNFNM RVFVM)",
  R"(H]SBLb RYBRb RLOZO RKUYU)",
  R"(H\PBP_ RTBT_ RYIWGTFPFMGKIKKLMMNOOUQWRXSYUYXWZT[P[MZKX)",
  R"(F^[FI[ RNFPHPJOLMMKMIKIIJGLFNFPGSHVHYG[F RWTUUTWTYV[X[ZZ[X[VYTWT)",
  R"(E_\O\N[MZMYNXPVUTXRZP[L[JZIYHWHUISJRQNRMSKSIRGPFNGMIMKNNPQUXWZY[[[\Z\Y)",
  R"(MWRHQGRFSGSIRKQL)",
  R"(KYVBTDRGPKOPOTPYR]T`Vb)",
  R"(KYNBPDRGTKUPUTTYR]P`Nb)",
  R"(JZRLRX RMOWU RWOMU)",
  R"(E_RIR[ RIR[R)",
  R"(NVSWRXQWRVSWSYQ[)",
  R"(E_IR[R)",
  R"(NVRVQWRXSWRV)",
  R"(G][BIb)",
  R"(H\QFNGLJKOKRLWNZQ[S[VZXWYRYOXJVGSFQF)",
  R"(H\NJPISFS[)",
  R"(H\LKLJMHNGPFTFVGWHXJXLWNUQK[Y[)",
  R"(H\MFXFRNUNWOXPYSYUXXVZS[P[MZLYKW)",
  R"(H\UFKTZT RUFU[)",
  R"(H\WFMFLOMNPMSMVNXPYSYUXXVZS[P[MZLYKW)",
  R"(H\XIWGTFRFOGMJLOLTMXOZR[S[VZXXYUYTXQVOSNRNOOMQLT)",
  R"(H\YFO[ RKFYF)",
  R"(H\PFMGLILKMMONSOVPXRYTYWXYWZT[P[MZLYKWKTLRNPQOUNWMXKXIWGTFPF)",
  R"(H\XMWPURRSQSNRLPKMKLLINGQFRFUGWIXMXRWWUZR[P[MZLX)",
  R"(NVROQPRQSPRO RRVQWRXSWRV)",
  R"(NVROQPRQSPRO RSWRXQWRVSWSYQ[)",
  R"(F^ZIJRZ[)",
  R"(E_IO[O RIU[U)",
  R"(F^JIZRJ[)",
  R"(I[LKLJMHNGPFTFVGWHXJXLWNVORQRT RRYQZR[SZRY)",
  R"(E`WNVLTKQKOLNMMPMSNUPVSVUUVS RQKOMNPNSOUPV RWKVSVUXVZV\T]Q]O\L[JYHWGTFQFNGLHJJILHOHRIUJWLYNZQ[T[WZYYZX RXKWSWUXV)",
  R"(I[RFJ[ RRFZ[ RMTWT)",
  R"(G\KFK[ RKFTFWGXHYJYLXNWOTP RKPTPWQXRYTYWXYWZT[K[)",
  R"(H]ZKYIWGUFQFOGMILKKNKSLVMXOZQ[U[WZYXZV)",
  R"(G\KFK[ RKFRFUGWIXKYNYSXVWXUZR[K[)",
  R"(H[LFL[ RLFYF RLPTP RL[Y[)",
  R"(HZLFL[ RLFYF RLPTP)",
  R"(H]ZKYIWGUFQFOGMILKKNKSLVMXOZQ[U[WZYXZVZS RUSZS)",
  R"(G]KFK[ RYFY[ RKPYP)",
  R"(NVRFR[)",
  R"(JZVFVVUYTZR[P[NZMYLVLT)",
  R"(G\KFK[ RYFKT RPOY[)",
  R"(HYLFL[ RL[X[)",
  R"(F^JFJ[ RJFR[ RZFR[ RZFZ[)",
  R"(G]KFK[ RKFY[ RYFY[)",
  R"(G]PFNGLIKKJNJSKVLXNZP[T[VZXXYVZSZNYKXIVGTFPF)",
  R"(G\KFK[ RKFTFWGXHYJYMXOWPTQKQ)",
  R"(G]PFNGLIKKJNJSKVLXNZP[T[VZXXYVZSZNYKXIVGTFPF RSWY])",
  R"(G\KFK[ RKFTFWGXHYJYLXNWOTPKP RRPY[)",
  R"(H\YIWGTFPFMGKIKKLMMNOOUQWRXSYUYXWZT[P[MZKX)",
  R"(JZRFR[ RKFYF)",
  R"(G]KFKULXNZQ[S[VZXXYUYF)",
  R"(I[JFR[ RZFR[)",
  R"(F^HFM[ RRFM[ RRFW[ R\FW[)",
  R"(H\KFY[ RYFK[)",
  R"(I[JFRPR[ RZFRP)",
  R"(H\YFK[ RKFYF RK[Y[)",
  R"(KYOBOb RPBPb ROBVB RObVb)",
  R"(KYKFY^)",
  R"(KYTBTb RUBUb RNBUB RNbUb)",
  R"(JZRDJR RRDZR)",
  R"(I[Ib[b)",
  R"(NVSKQMQORPSORNQO)",
  R"(I\XMX[ RXPVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(H[LFL[ RLPNNPMSMUNWPXSXUWXUZS[P[NZLX)",
  R"(I[XPVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(I\XFX[ RXPVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(I[LSXSXQWOVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(MYWFUFSGRJR[ ROMVM)",
  R"(I\XMX]W`VaTbQbOa RXPVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(I\MFM[ RMQPNRMUMWNXQX[)",
  R"(NVQFRGSFREQF RRMR[)",
  R"(MWRFSGTFSERF RSMS^RaPbNb)",
  R"(IZMFM[ RWMMW RQSX[)",
  R"(NVRFR[)",
  R"(CaGMG[ RGQJNLMOMQNRQR[ RRQUNWMZM\N]Q][)",
  R"(I\MMM[ RMQPNRMUMWNXQX[)",
  R"(I\QMONMPLSLUMXOZQ[T[VZXXYUYSXPVNTMQM)",
  R"(H[LMLb RLPNNPMSMUNWPXSXUWXUZS[P[NZLX)",
  R"(I\XMXb RXPVNTMQMONMPLSLUMXOZQ[T[VZXX)",
  R"(KXOMO[ ROSPPRNTMWM)",
  R"(J[XPWNTMQMNNMPNRPSUTWUXWXXWZT[Q[NZMX)",
  R"(MYRFRWSZU[W[ ROMVM)",
  R"(I\MMMWNZP[S[UZXW RXMX[)",
  R"(JZLMR[ RXMR[)",
  R"(G]JMN[ RRMN[ RRMV[ RZMV[)",
  R"(J[MMX[ RXMM[)",
  R"(JZLMR[ RXMR[P_NaLbKb)",
  R"(J[XMM[ RMMXM RM[X[)",
  R"(KYTBRCQDPFPHQJRKSMSOQQ RRCQEQGRISJTLTNSPORSTTVTXSZR[Q]Q_Ra RQSSUSWRYQZP\P^Q`RaTb)",
  R"(NVRBRb)",
  R"(KYPBRCSDTFTHSJRKQMQOSQ RRCSESGRIQJPLPNQPURQTPVPXQZR[S]S_Ra RSSQUQWRYSZT\T^S`RaPb)",
  R"(F^IUISJPLONOPPTSVTXTZS[Q RISJQLPNPPQTTVUXUZT[Q[O)",
};
// clang-format on

constexpr double kCapital = 21;  // height of a capital letter
// The same in a font of size 1.
constexpr double kCapitalShare = 0.68;
constexpr double kBaseline = 9;

std::string_view glyph_of(char c) {
  const bool is_known = c >= ' ' && c <= '~';
  return kGlyphs[static_cast<size_t>((is_known ? c : '?') - ' ')];
}

// The letters of `text` as lines, beginning at (0, 0) on the baseline.
std::vector<Stroke> text_strokes(std::string_view text, double size) {
  const double unit = kCapitalShare * size / kCapital;
  std::vector<Stroke> strokes;
  double x = 0;
  for (const char c : text) {
    const std::string_view glyph = glyph_of(c);
    const double left = x - unit * (glyph[0] - 'R');
    bool is_down = false;
    for (size_t i = 2; i + 1 < glyph.size(); i += 2) {
      if (glyph[i] == ' ') {
        is_down = false;
        continue;
      }
      if (!is_down) strokes.emplace_back();
      is_down = true;
      strokes.back().push_back(
          {left + unit * (glyph[i] - 'R'),
           unit * (glyph[i + 1] - 'R' - kBaseline)});
    }
    x += unit * (glyph[1] - glyph[0]);
  }
  return strokes;
}

// RGB pixels on which lines with round ends are drawn, smoothed.
class Canvas {
 public:
  Canvas(int64_t width, int64_t height)
      : width_(width),
        height_(height),
        pixels_(static_cast<size_t>(width * height * 3), 255),
        coverage_(static_cast<size_t>(width * height), 0) {}

  // Where a line crosses itself it covers a pixel once, as in SVG.
  void
  draw(const Stroke& points, double width, uint32_t color, double opacity) {
    for (size_t i = 0; i < points.size(); ++i) {
      cover(points[i], points[std::min(i + 1, points.size() - 1)], width / 2);
    }
    for (const size_t at : covered_) {
      const double share = opacity * std::exchange(coverage_[at], 0);
      for (int channel = 0; channel < 3; ++channel) {
        const double target = color >> (16 - 8 * channel) & 0xFF;
        uint8_t& value = pixels_[at * 3 + channel];
        value =
            static_cast<uint8_t>(std::lround(value + share * (target - value)));
      }
    }
    covered_.clear();
  }

  std::vector<uint8_t> to_png() const {
#ifdef TERN_WITH_ARCHIVES
    return encode_png(pixels_, width_, height_, 3);
#else
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "[to_png] this Tern was built without zlib; write the plot as .svg, or "
        "build with TERN_ARCHIVES=ON.");
#endif
  }

 private:
  // Pixels are covered by their distance from the line between a and b.
  void cover(Point a, Point b, double radius) {
    const double reach = radius + 1;
    const auto range = [&](double from, double to, int64_t size) {
      return std::pair{
          static_cast<int64_t>(std::clamp<double>(
              std::floor(std::min(from, to) - reach),
              0,
              size)),
          static_cast<int64_t>(std::clamp<double>(
              std::ceil(std::max(from, to) + reach),
              0,
              size))};
    };
    const auto [left, right] = range(a.x, b.x, width_);
    const auto [top, bottom] = range(a.y, b.y, height_);
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double squared = dx * dx + dy * dy;
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t x = left; x < right; ++x) {
        const double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
        const double t =
            squared > 0 ? std::clamp((px * dx + py * dy) / squared, 0.0, 1.0)
                        : 0;
        const double away = std::hypot(px - t * dx, py - t * dy);
        // A line thinner than a pixel is paler.
        const double share = std::clamp(radius + 0.5 - away, 0.0, 1.0) *
                             std::min(1.0, 2 * radius);
        if (share <= 0) continue;
        const auto at = static_cast<size_t>(y * width_ + x);
        if (coverage_[at] == 0) covered_.push_back(at);
        coverage_[at] = std::max(coverage_[at], static_cast<float>(share));
      }
    }
  }

  int64_t width_, height_;
  std::vector<uint8_t> pixels_;
  std::vector<float> coverage_;  // by the line that is being drawn
  std::vector<size_t> covered_;
};

void draw_text(Canvas& canvas, const Drawing::Text& text, double scale) {
  const double width = text_width(text.text, text.size);
  const double shift = -width * static_cast<int>(text.anchor) / 2;
  for (Stroke stroke : text_strokes(text.text, text.size)) {
    for (Point& p : stroke) {
      const double along = p.x + shift;
      p = text.upwards ? Point{text.at.x + p.y, text.at.y - along}
                       : Point{text.at.x + along, text.at.y + p.y};
      p = {p.x * scale, p.y * scale};
    }
    canvas.draw(stroke, text.size / 11 * scale, color_of(Ink::text, 0), 1);
  }
}

}  // namespace

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    const std::string_view glyph = glyph_of(c);
    width += glyph[1] - glyph[0];
  }
  return width * kCapitalShare * size / kCapital;
}

std::vector<uint8_t> to_png(const Plot& plot, double scale) {
  TORCH_CHECK_VALUE(
      scale >= 0.25 && scale <= 8,
      fmt::format("[to_png] scale is {}; expected 0.25 to 8.", scale));
  const Drawing drawing = draw(plot);
  Canvas canvas(
      std::lround(drawing.width * scale),
      std::lround(drawing.height * scale));
  for (const Drawing::Line& line : drawing.lines) {
    Stroke points = line.points;
    for (Point& p : points) p = {p.x * scale, p.y * scale};
    canvas.draw(
        points,
        line.width * scale,
        color_of(line.ink, line.series),
        line.opacity);
  }
  for (const Drawing::Text& text : drawing.texts) {
    draw_text(canvas, text, scale);
  }
  return canvas.to_png();
}

}  // namespace tern

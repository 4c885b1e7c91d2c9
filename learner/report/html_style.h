#pragma once

namespace tern {

/// The style sheet of HtmlPage.
constexpr const char* kHtmlStyle = R"css(
:root { color-scheme: light dark;
  --text: #1f2328; --soft: #59636e; --back: #ffffff; --panel: #f6f8fa;
  --rule: #d1d9e0; --grid: #e4e8ec; --accent: #0072B2; --shade: 0, 114, 178;
  --series-0: #0072B2; --series-1: #D55E00; --series-2: #009E73;
  --series-3: #CC79A7; --series-4: #B87E00; --series-5: #3A9BD0; }
@media (prefers-color-scheme: dark) { :root {
  --text: #e6edf3; --soft: #9198a1; --back: #0d1117; --panel: #161b22;
  --rule: #3d444d; --grid: #262c34; --accent: #58b0e8; --shade: 88, 176, 232;
  --series-0: #58b0e8; --series-1: #ff8a3d; --series-2: #2fc795;
  --series-3: #e39cc4; --series-4: #f0b429; --series-5: #8fd0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem clamp(1rem, 4vw, 3rem) 4rem;
  background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .8rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--rule); scroll-margin-top: 1rem; }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .5rem; }
p { max-width: 46rem; margin: .6rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .92rem; }
.scroll { overflow-x: auto; margin: .7rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .32rem .8rem; text-align: left; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { font-weight: 600; color: var(--soft); }
.number { text-align: right; }
table.matrix td { text-align: center; min-width: 2.6rem; border: 1px solid var(--rule); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr;
  gap: .25rem 1.2rem; margin: .7rem 0; font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: .7rem 0; padding: .8rem 1rem; overflow-x: auto; border-radius: 6px;
  font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  border: 1px solid var(--rule); }
pre.code { background: var(--panel); border-left: 3px solid var(--accent); }
code { font: .88em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  background: var(--panel); padding: .1em .3em; border-radius: 4px; }
.plots { display: grid; gap: 1rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.plots svg { width: 100%; height: auto; max-width: 45rem; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin: .8rem 0; }
figure { margin: 0; max-width: 100%; }
figure img { max-width: 100%; image-rendering: auto; border-radius: 4px; display: block; }
figcaption { font-size: .85rem; color: var(--soft); margin-top: .25rem; }
)css";

}  // namespace tern

"""The report of `dfc bench` as one HTML file: inline SVG, no script, nothing from the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from dfc.runtime.benchmark import Measured

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 44, 16

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff; --card: #f6f8fa;
  --c0: #0072b2; --c1: #b75000; --c2: #00785a; --c3: #a8457f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9da7b1; --line: #3d444d; --paper: #0d1117;
  --card: #161b22; --c0: #56b4e9; --c1: #e69f00; --c2: #2fc79a; --c3: #d98cb8; } }
* { box-sizing: border-box; }
body { margin: 0;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1400px; margin: 0 auto; padding: 2rem 1rem; }
h1 { margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0; } p { color: var(--soft); margin: .2rem 0 1rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
figure { margin: 0; padding: 1rem;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; min-width: 0; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 13px; }
.grid { stroke: var(--line); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
td:last-child { white-space: normal; }
th:first-child, td:first-child { text-align: left; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; }
.key i { display: inline-block; width: .8em;
  height: .8em; margin-right: .35em; border-radius: 2px; }
section { margin-top: 1.5rem; }
"""


def render(report: Mapping[str, object], measured: Sequence[Measured]) -> str:
    """Return the report as one HTML document."""
    text = [entry for entry in measured if entry.context == 0]
    longest = {entry.speculation: entry for entry in text if entry.draft_tokens}
    shown = list(longest.values())
    fastest: dict[str, Measured] = {}
    for entry in text:
        best = fastest.get(entry.speculation)
        if best is None or entry.decode.median > best.decode.median:
            fastest[entry.speculation] = entry
    names = [entry.name for entry in fastest.values()]
    contexts = sorted({entry.context for entry in measured})
    speed = {
        name: [next(e.decode.median for e in measured if e.name == name and e.context == c) for c in contexts]
        for name in names
    }
    width = max((entry.draft_tokens for entry in shown), default=0)
    acceptance = {entry.name: [100 * share for share in entry.acceptance_by_position] for entry in shown}
    lengths = {entry.name: [100 * n / entry.rounds for n in entry.accepted_lengths] for entry in shown}
    parts = ("draft", "verify", "host")
    stages = {
        "draft": [fastest[s].draft_ms for s in fastest],
        "verify": [fastest[s].verify_ms for s in fastest],
        "host": [fastest[s].host_ms for s in fastest],
    }
    figures = [
        _figure(
            "Tokens a second against context",
            "Fastest draft length of each drafter; tokens/s",
            [str(c) if c else "text" for c in contexts],
            speed,
        ),
        _figure(
            "Time of a round by stage",
            "Milliseconds, medians, one above the other",
            names,
            {part: stages[part] for part in parts},
            stacked=True,
        ),
    ]
    if shown:
        figures += [
            _figure(
                "Acceptance by position",
                "Percent of rounds whose draft at this position held",
                [str(i + 1) for i in range(width)],
                acceptance,
            ),
            _figure("Accepted drafts in a round", "Percent of rounds", [str(i) for i in range(width + 1)], lengths),
        ]
    best = max(text, key=lambda entry: entry.decode.median)
    plain = next(entry for entry in text if not entry.draft_tokens)
    gain = best.decode.median / plain.decode.median
    title = escape(f"{report['model']} on {report['backend']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dfc bench: {title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><main><h1>{title}</h1>"
        f"<p>Fastest: {escape(best.name)}, {best.decode.median:.0f} tokens/s, {gain:.2f} times plain decoding."
        f" {report['repetitions']} interleaved repetitions, {report['max_new']} new tokens a prompt.</p>"
        f'<div class="figures">{"".join(figures)}</div>{_table(measured)}</main></body></html>\n'
    )


def _figure(
    title: str, caption: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], *, stacked: bool = False
) -> str:
    """Bars: side by side, or one above the other where `stacked`."""
    columns = [[values[i] if i < len(values) else 0.0 for values in series.values()] for i in range(len(labels))]
    top = max((sum(column) if stacked else max(column) for column in columns), default=0.0) or 1.0
    # The next round number, so that the marks of the axis are round, too.
    unit = 10.0 ** math.floor(math.log10(top))
    top = next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * unit >= top * (1 - 1e-9))
    height, width = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT) / len(labels)
    marks = []
    for tick in range(5):
        y = TOP + height * (1 - tick / 4)
        text = f"{top * tick / 4:.3g}" if top < 1000 else f"{top * tick / 4:.0f}"
        marks.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for i, (label, column) in enumerate(zip(labels, columns, strict=True)):
        begin, each = LEFT + width * (i + 0.15), width * 0.7 / (1 if stacked else len(column))
        floor = float(TOP + height)
        for j, (name, value) in enumerate(zip(series, column, strict=True)):
            tall = height * value / top
            x, y = (begin, floor - tall) if stacked else (begin + j * each, TOP + height - tall)
            floor -= tall
            marks.append(
                f'<rect class="mark" x="{x:.1f}" y="{y:.1f}" width="{max(each - 1, 1):.1f}" height="{tall:.1f}"'
                f' fill="var(--c{j % 4})"><title>{escape(name)}, {escape(label)}: {value:.4g}</title></rect>'
            )
        marks.append(
            f'<text x="{begin + width * 0.35:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{escape(label)}</text>'
        )
    key = "".join(f'<span><i style="background: var(--c{j % 4})"></i>{escape(n)}</span>' for j, n in enumerate(series))
    return (
        f'<figure><h2>{title}</h2><p>{caption}</p><div class="key">{key}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{"".join(marks)}</svg></figure>'
    )


def _table(measured: Sequence[Measured]) -> str:
    head = ("decoding", "context", "prefill/s", "tokens/s", "least", "most", "draft ms", "verify ms", "host ms",
            "tokens a round", "drafts a round", "by position")  # fmt: skip
    rows = []
    for e in measured:
        positions = " ".join(f"{share:.0%}" for share in e.acceptance_by_position)
        cells = (e.name, str(e.context or "text"), f"{e.prefill.median:.0f}", f"{e.decode.median:.0f}",
                 f"{e.decode.least:.0f}", f"{e.decode.most:.0f}", f"{e.draft_ms:.2f}", f"{e.verify_ms:.2f}",
                 f"{e.host_ms:.2f}", f"{e.tokens_per_round:.2f}", f"{e.accepted_per_round:.2f}", positions)  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    header = "".join(f"<th>{cell}</th>" for cell in head)
    table = f"<table><tr>{header}</tr>{''.join(rows)}</table>"
    return f'<section><h2>All figures</h2><div class="scroll">{table}</div></section>'

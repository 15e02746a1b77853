"""The report as one HTML page: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from html import escape

from .report import Group, Report, Result, figure, pace
from .suite import GROUPS

__all__ = ["page"]

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --dim: #767676; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child, .left { text-align: left; }
td small { color: var(--dim); display: block; }
.zero { color: var(--dim); } .bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); font-weight: 600; }
pre { background: #8881; padding: .8rem; overflow-x: auto; border-radius: 6px; font-size: 13px; }
summary { cursor: pointer; padding: .3rem 0; } tfoot td { font-weight: 600; }
td.note { text-align: left; overflow-wrap: anywhere; }
""".strip()


def page(report: Report) -> str:
    title = f"poolgrad check {report.target}"
    verdict = f'<span class="{"good" if report.ok else "bad"}">{report.verdict}</span>'
    facts = f"{report.target} {report.version} · seed {report.seed} · {len(report.results)} cases · {report.seconds:.0f} s"
    parts = [f"<h1>{escape(title)}: {verdict}</h1>", f"<p>{escape(facts)}</p>", _table(report)]
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    if report.reproducers:
        parts.append("<h2>Smallest failing cases</h2>")
    for made in report.reproducers:
        parts += [f"<h3>{escape(made.group)}: {escape(made.outcome)}</h3>", f"<p>{escape(made.note)}</p>"]
        parts.append(f"<pre>{escape(made.script)}</pre>")
    parts += ["<h2>Every case</h2>", *(_details(group, report) for group in report.groups)]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>{"".join(parts)}</body></html>\n'


def _table(report: Report) -> str:
    names = ("group", "right", "wrong", "unsupported", "crashed", "worst error (ulps)", "time", "ours")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(_row(group) for group in report.groups)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody><tfoot>{_row(report.total)}</tfoot></table>"


def _row(group: Group) -> str:
    about = GROUPS[group.group][0] if group.group in GROUPS else ""
    cells = [f"<td>{escape(group.group)}<small>{escape(about)}</small></td>", _number(group.right)]
    cells += [_number(group.wrong, "bad"), _number(group.unsupported), _number(group.crashed, "bad")]
    cells += [f"<td>{text}</td>" for text in (figure(group.worst), pace(group.seconds), pace(group.ours))]
    return f"<tr>{''.join(cells)}</tr>"


def _number(many: int, kind: str = "") -> str:
    return f'<td class="{kind if many else "zero"}">{many}</td>'


def _details(group: Group, report: Report) -> str:
    rows = "".join(_case(result) for result in report.results if result.case.group == group.group)
    head = '<th>case</th><th class="left">pooling</th><th class="left">verdict</th><th>ulps</th><th class="left">note</th>'
    label = f"{group.group}: {group.right} right, {group.wrong} wrong, {group.unsupported} unsupported, {group.crashed} crashed"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<details><summary>{escape(label)}</summary>{table}</details>"


def _case(result: Result) -> str:
    case, verdict = result.case, result.verdict
    kind = {"right": "good", "unsupported": "zero"}.get(verdict.outcome, "bad")
    shapes = f"{list(case.input_shape)} ← {list(case.dy_shape)} {case.dtype}"
    cells = [f"<td>{escape(case.name)}</td>", f'<td class="note">{escape(str(case.pooling))}<small>{escape(shapes)}</small></td>']
    cells += [f'<td class="left {kind}">{verdict.outcome}</td>', f"<td>{figure(verdict.ulps)}</td>"]
    return f'<tr>{"".join(cells)}<td class="note">{escape(verdict.note)}</td></tr>'

"""Medians, ratios of Tuskline to each peer, and tables of at most 80 columns."""

import os
import platform
import textwrap
from statistics import median

from .peers import GUARANTEES

WIDTH = 80
OURS = "tuskline"
# By workload: title of a column, key, decimals. A ratio stands beside the figures of RATIOS.
DRAIN = (("tasks/s", "tasks_per_s", 0), ("WAL B", "wal_bytes_per_task", 0), ("commits", "commits_per_task", 3),
         ("srv us", "server_cpu_us_per_task", 1), ("cli us", "client_cpu_us_per_task", 1))
LATENCY = (("p50", "p50_ms", 1), ("p95", "p95_ms", 1), ("p99", "p99_ms", 1), ("max", "max_ms", 0),
           ("WAL B", "wal_bytes_per_task", 0), ("srv us", "server_cpu_us_per_task", 0))
HELD = (("p50 1st", "first_p50_ms", 1), ("p50 last", "last_p50_ms", 1), ("growth", "growth", 2),
        ("begun 1st", "first_started", 0), ("begun last", "last_started", 0))
TABLES = {
    "drain": (DRAIN, (("x rate", "tasks_per_s", 2),)),
    "latency": (LATENCY, (("x p50", "p50_ms", 2), ("x p99", "p99_ms", 2))),
    "held-horizon": (HELD, (("x last", "last_p50_ms", 2),)),
}


def summary(records):
    """By workload and peer: medians over the rounds that went well, and ratios to them."""
    groups = {}
    for record in records:
        group = groups.setdefault((record["workload"], record.get("rate")), {})
        group.setdefault(record["peer"], []).append(record)
    return [
        {"workload": workload, "rate": rate, "peers": with_ratios(workload, peers)}
        for (workload, rate), peers in groups.items()
    ]


def with_ratios(workload, peers):
    columns, ratios = TABLES[workload]
    rows = {name: medians(columns, records) for name, records in peers.items()}
    for row in rows.values():
        for _, key, _ in ratios:
            ours, its = rows.get(OURS, {}).get(key), row[key]
            row[f"ours_to_its_{key}"] = ours / its if ours is not None and its else None
    return rows


def medians(columns, records):
    well = [flat(record) for record in records if not record.get("problem")]
    row = {"rounds": len(records), "rounds_well": len(well)}
    row["tasks"] = records[0].get("tasks")
    for _, key, _ in columns:
        known = [record[key] for record in well if record.get(key) is not None]
        row[key] = median(known) if known else None
    row["problems"] = [record["problem"] for record in records if record.get("problem")]
    return row


def flat(record):
    """With the parts of a held snapshot beside the rest."""
    parts = record.get("parts", {})
    more = {f"{name}_{key}": value for name, part in parts.items() for key, value in part.items()}
    first, last = more.get("first_p50_ms"), more.get("last_p50_ms")
    return record | more | {"growth": last / first if first and last else None}


def text(report):
    """The whole report, for people."""
    peers = {peer["name"]: peer for peer in report["peers"]}
    lines = []
    for table in report["summary"]:
        lines += table_lines(table, peers, report["options"]) + [""]
    lines += [
        "x: Tuskline's figure divided by the peer's, from this run.",
        "lacks: what Tuskline keeps and the peer, as it is run here, does not:",
    ]
    lines += [f"  {letter}  {what}" for letter, what in GUARANTEES.items()]
    lines.append("")
    for peer in report["peers"]:
        because = f" Lacks: {peer['lacks_because']}." if peer["lacks"] else ""
        note = f" {peer['lacks_because']}." if peer["lacks_because"] and not peer["lacks"] else ""
        lines += wrapped(f"{peer['name']} {peer['version']}: {peer['settings']}.{because}{note}")
    machine = report["machine"]
    settings = ", ".join(f"{name}={value}" for name, value in report["settings"].items())
    lines += ["", *wrapped(f"{machine['cpus']} cpus {machine['model']}, kernel {machine['kernel']}, "
                           f"node {report['node']}; PostgreSQL: {settings}")]
    return "\n".join(lines)


def table_lines(table, peers, options):
    columns, ratios = TABLES[table["workload"]]
    rows = table["peers"]
    lines = [title(table, options), ""]
    ratio_columns = [(name, f"ours_to_its_{key}", digits) for name, key, digits in ratios]
    shown = [*columns, *ratio_columns]
    widths = [max(len(name), 7 if digits == 0 else 6) for name, _, digits in shown]
    heads = " ".join(name.rjust(width) for (name, _, _), width in zip(shown, widths))
    lines.append(f"{'':<16}{heads} lacks")
    for name, row in rows.items():
        cells = " ".join(
            cell(row[key], digits).rjust(width) for (_, key, digits), width in zip(shown, widths)
        )
        mark = "*" if row["problems"] else ""
        lines.append(f"{name + mark:<16}{cells} {peers[name]['lacks'] or '-'}")
    for name, row in rows.items():
        for problem in row["problems"]:
            lines += wrapped(f"* {name}: {problem}")
    return lines


def title(table, options):
    rounds = options["rounds"]
    often = "one round" if rounds == 1 else f"medians of {rounds} rounds"
    sizes = sorted({row["tasks"] for row in table["peers"].values() if row["tasks"]})
    if table["workload"] == "drain":
        return f"drain of {' or '.join(f'{size:,}' for size in sizes)} tasks, one worker; {often}"
    if table["workload"] == "latency":
        return f"insert to start in ms, {table['rate']}/s for {options['seconds']} s; {often}"
    return f"under a held snapshot, {table['rate']}/s for {options['held_seconds']} s, p50 in ms; {often}"


def cell(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def wrapped(line):
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def machine():
    """Where it ran."""
    model = None
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), None)
    except OSError:
        pass
    return {"cpus": len(os.sched_getaffinity(0)), "model": model, "kernel": platform.release()}

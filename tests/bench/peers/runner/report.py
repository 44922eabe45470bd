"""Medians, ratios of Tuskline to each peer, and tables of at most 80 columns."""

import os
import platform
import textwrap
from statistics import median

from .peers import GUARANTEES

WIDTH = 80
OURS = "tuskline"
# By workload: title of a column, key, decimals, width; then those that are ratios to Tuskline's.
DRAIN = (
    ("tasks/s", "tasks_per_s", 0, 8),
    ("WAL B", "wal_bytes_per_task", 0, 6),
    ("commits", "commits_per_task", 3, 8),
    ("srv us", "server_cpu_us_per_task", 1, 7),
    ("cli us", "client_cpu_us_per_task", 1, 7),
)
LATENCY = (
    ("p50", "p50_ms", 1, 6),
    ("p95", "p95_ms", 1, 6),
    ("p99", "p99_ms", 1, 6),
    ("max", "max_ms", 0, 6),
    ("sent/s", "sent_per_s", 0, 7),
    ("WAL B", "wal_bytes_per_task", 0, 6),
    ("srv us", "server_cpu_us_per_task", 0, 7),
)
HELD = (
    ("p50 1st", "first_p50_ms", 1, 8),
    ("p50 last", "last_p50_ms", 1, 9),
    ("growth", "growth", 2, 7),
    ("begun 1st", "first_started", 0, 10),
    ("begun last", "last_started", 0, 11),
)
TABLES = {
    "drain": (DRAIN, (("x rate", "tasks_per_s", 2, 7),)),
    "latency": (LATENCY, (("x p50", "p50_ms", 2, 6), ("x p99", "p99_ms", 2, 6))),
    "held-horizon": (HELD, (("x last", "last_p50_ms", 2, 7),)),
}


def summary(records):
    """By workload and peer: medians over the rounds that went well, and Tuskline's ratios to them."""
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
    for name, row in rows.items():
        for _, key, *_ in ratios:
            known = ratios_by_round(key, peers.get(OURS, []), peers[name])
            row[f"ours_to_its_{key}"] = median(known) if known else None
            row[f"ours_to_its_{key}_by_round"] = known
    return rows


def ratios_by_round(key, ours, its):
    """Within a round, as the machine is not the same an hour later."""
    mine, theirs = by_round(key, ours), by_round(key, its)
    return [mine[number] / theirs[number] for number in sorted(mine.keys() & theirs.keys())]


def by_round(key, records):
    well = {record["round"]: flat(record) for record in records if not record.get("problem")}
    return {number: record[key] for number, record in well.items() if record.get(key)}


def medians(columns, records):
    well = [flat(record) for record in records if not record.get("problem")]
    row = {"rounds": len(records), "rounds_well": len(well)}
    row["tasks"] = records[0].get("tasks")
    for _, key, *_ in columns:
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
        "x: Tuskline's figure divided by the peer's of the same round; median of rounds.",
        "lacks: what Tuskline keeps and the peer, as it is run here, does not:",
    ]
    lines += [f"  {letter}  {what}" for letter, what in GUARANTEES.items()]
    lines.append("")
    for peer in report["peers"]:
        lines += wrapped(about(peer))
    machine = report["machine"]
    settings = ", ".join(f"{name}={value}" for name, value in report["settings"].items())
    where = f"{machine['cpus']} cpus {machine['model']}, kernel {machine['kernel']}"
    lines += ["", *wrapped(f"{where}, node {report['node']}; PostgreSQL: {settings}")]
    return "\n".join(lines)


def about(peer):
    """Version and settings, and why it lacks what it lacks."""
    line = f"{peer['name']} {peer['version']}: {peer['settings']}."
    if peer["note"]:
        line += f" {'Lacks' if peer['lacks'] else 'Note'}: {peer['note']}."
    return line


def table_lines(table, peers, options):
    columns, ratios = TABLES[table["workload"]]
    rows = table["peers"]
    lines = [title(table, options), ""]
    shown = [*columns, *((name, f"ours_to_its_{key}", *form) for name, key, *form in ratios)]
    heads = "".join(name.rjust(width) for name, _, _, width in shown)
    lines.append(f"{'':<16}{heads} lacks")
    for name, row in rows.items():
        cells = "".join(cell(row[key], digits).rjust(width) for _, key, digits, width in shown)
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
    tasks = " or ".join(f"{size:,}" for size in sizes)
    rate = f"{table['rate']}/s for"
    return {
        "drain": f"drain of {tasks} tasks, one worker; {often}",
        "latency": f"insert to start in ms, {rate} {options['seconds']} s; {often}",
        "held-horizon": f"held snapshot, {rate} {options['held_seconds']} s, p50 in ms; {often}",
    }[table["workload"]]


def cell(value, digits):
    if value is None:
        return "-"
    return f"{value:,.{digits if value < 1000 else 0}f}"


def wrapped(line):
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def machine():
    """Where it ran."""
    model = None
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
            model = next(names, None)
    except OSError:
        pass
    return {"cpus": len(os.sched_getaffinity(0)), "model": model, "kernel": platform.release()}

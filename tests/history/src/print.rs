//! A report for people, in 80 columns.

use std::fmt::{self, Display, Formatter};

use crate::{Bounded, Chains, Invariant, Lateness, Percentiles, Redrives, Report, Restores, Ticks};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        writeln!(
            f,
            "\n{:<4} {:<28} {:>12} {:>10}  {:>10}",
            "id", "what", "N", "violated", "true rate"
        )?;
        self.invariants.iter().try_for_each(|invariant| row(f, invariant))?;
        self.overlaps(f)?;
        self.counts(f)?;
        self.features(f)?;
        self.durations(f)?;
        self.lateness(f)?;
        self.violations(f)
    }
}

impl Report {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (events, seconds) = (self.events, self.lasted_s);
        writeln!(f, "{events} events in {seconds:.0} s, seed {}", self.seed)?;
        self.versions.iter().try_for_each(|version| writeln!(f, "  {version}"))?;
        if self.cut_lines > 0 {
            writeln!(
                f,
                "{} files end with a line cut short by the death of their writer",
                self.cut_lines
            )?;
        }
        writeln!(
            f,
            "{} tasks accepted, {} executions, {} lost",
            self.accepted, self.executed, self.lost
        )?;
        let legal = self.replayed - self.invariant("I6").map_or(0, |check| check.violations);
        writeln!(f, "{} transitions replayed, {legal} accepted", self.replayed)?;
        let (tried, refused, applied) = (self.stale_tried, self.stale_refused, self.stale_applied);
        writeln!(f, "{tried} stale calls tried, {refused} refused, {applied} applied")
    }

    fn overlaps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (live, stopped) = (self.overlaps, self.overlaps_stopped);
        let (lock, interval) = (self.overlaps_by_lock, self.overlaps_by_interval);
        writeln!(f, "\noverlaps: {live} live, {stopped} with a holder stopped beyond the margin")?;
        writeln!(f, "  of both {lock} by the kernel's lock, {interval} by the bodies' intervals")
    }

    fn counts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nrepeats by cause")?;
        self.repeats.iter().try_for_each(|(cause, n)| writeln!(f, "  {cause:<28} {n:>10}"))?;
        writeln!(f, "\nfaults")?;
        self.faults.iter().try_for_each(|(kind, n)| writeln!(f, "  {kind:<28} {n:>10}"))
    }

    /// The features of Tuskline that the run used.
    fn features(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Chains { graphs, tasks, smallest, largest, dependencies } = self.chains;
        if graphs > 0 {
            writeln!(
                f,
                "\nchains: graphs {graphs}, of {smallest} to {largest} tasks, {tasks} in all"
            )?;
            writeln!(f, "  {dependencies} dependencies")?;
        }
        let Ticks { schedules, owed, doubled, missing, made_up_for, late } = &self.ticks;
        if *schedules > 0 {
            writeln!(
                f,
                "\nticks: counted {owed} of {schedules} schedules, {doubled} doubled, {missing} missing"
            )?;
            let (p50, p99, max) = (late.p50_ms, late.p99_ms, late.max_ms);
            writeln!(
                f,
                "  dealt with after {p50:.0} ms (P50), {p99:.0} ms (P99), {max:.0} ms (max); \
                 {made_up_for} had been missed"
            )?;
        }
        let Redrives { set, done, died_again, let_go, astray, dead, lost } = self.redrives;
        if set > 0 {
            writeln!(
                f,
                "\nredrives: {set} set, {done} done, {died_again} stopped by their canary"
            )?;
            writeln!(
                f,
                "  {let_go} returns, {astray} astray; {dead} dead at the end, {lost} lost"
            )?;
        }
        let Restores { done, accepted_before, gone, claims_gone, ids_again, ids_before_recovery } =
            self.restores;
        if done > 0 {
            writeln!(
                f,
                "\nrestores: {done} copies put back; {accepted_before} accepted before the last was taken"
            )?;
            writeln!(f, "  {gone} tasks and {claims_gone} claims of later are gone")?;
            writeln!(
                f,
                "  ids issued again: {ids_again} by cold copies, {ids_before_recovery} before a recovery"
            )?;
        }
        Ok(())
    }

    fn durations(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = ["n", "p50", "p90", "p99", "max", "bound"];
        let [n, p50, p90, p99, max, bound] = ms;
        writeln!(
            f,
            "\n{:<24} {n:>8} {p50:>7} {p90:>7} {p99:>7} {max:>7} {bound:>7}",
            "recovery, ms"
        )?;
        duration(f, "worker death", &self.recovery.worker_death)?;
        of_these(f, "unwatched", &self.recovery.worker_death_unwatched)?;
        for (phase, percentiles) in &self.recovery.worker_death_by_phase {
            of_these(f, phase, percentiles)?;
        }
        duration(f, "database return", &self.recovery.database_return)?;
        duration(f, "failover", &self.recovery.failover)?;
        duration(f, "restored copy", &self.recovery.restore)?;
        duration(f, "resumed, then gone", &self.resumed)?;
        duration(f, "dead line noticed", &self.wake_lines)?;
        duration(f, "gate closed, last start", &self.gates)
    }

    fn lateness(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [n, p50, p95, p99, max, excluded] = ["n", "p50", "p95", "p99", "max", "excluded"];
        writeln!(
            f,
            "\n{:<22} {n:>8} {p50:>7} {p95:>7} {p99:>7} {max:>7} {excluded:>9}",
            "lateness, ms"
        )?;
        self.lateness.iter().try_for_each(|(phase, lateness)| late(f, phase, lateness))
    }

    fn violations(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for invariant in self.invariants.iter().filter(|invariant| invariant.violations > 0) {
            writeln!(
                f,
                "\n{} violated {} times: {}",
                invariant.id, invariant.violations, invariant.statement
            )?;
            for found in &invariant.details {
                match found.task {
                    Some(task) => writeln!(f, "  task {task}: {}", found.what)?,
                    None => writeln!(f, "  {}", found.what)?,
                }
            }
        }
        for tale in &self.tales {
            writeln!(f, "\ntask {}", tale.task)?;
            tale.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        }
        Ok(())
    }
}

fn row(f: &mut Formatter<'_>, check: &Invariant) -> fmt::Result {
    let Invariant { id, name, checked, violations, .. } = check;
    let rate = match check.upper95 {
        Some(upper) => format!("< {upper:.1e}"),
        None if *checked == 0 => "nothing".to_owned(),
        None => "VIOLATED".to_owned(),
    };
    writeln!(f, "{id:<4} {name:<28} {checked:>12} {violations:>10}  {rate:>10}")
}

fn duration(f: &mut Formatter<'_>, what: &str, found: &Bounded) -> fmt::Result {
    let p = &found.percentiles;
    let (bound, mark) = (found.bound_ms, if found.ok { "" } else { " !" });
    let (p50, p90, p99, max) = (p.p50_ms, p.p90_ms, p.p99_ms, p.max_ms);
    writeln!(
        f,
        "{what:<24} {:>8} {p50:>7.0} {p90:>7.0} {p99:>7.0} {max:>7.0} {bound:>7.0}{mark}",
        p.n
    )
}

/// A part of what stands above.
fn of_these(f: &mut Formatter<'_>, which: &str, p: &Percentiles) -> fmt::Result {
    let what = format!("  of these {which}");
    let (p50, p90, p99, max) = (p.p50_ms, p.p90_ms, p.p99_ms, p.max_ms);
    writeln!(f, "{what:<24} {:>8} {p50:>7.0} {p90:>7.0} {p99:>7.0} {max:>7.0}", p.n)
}

fn late(f: &mut Formatter<'_>, phase: &str, found: &Lateness) -> fmt::Result {
    let p = &found.percentiles;
    let (excluded, mark) = (found.excluded, if found.ok { "" } else { " !" });
    let (p50, p95, p99, max) = (p.p50_ms, p.p95_ms, p.p99_ms, p.max_ms);
    writeln!(
        f,
        "{phase:<22} {:>8} {p50:>7.0} {p95:>7.0} {p99:>7.0} {max:>7.0} {excluded:>9}{mark}",
        p.n
    )
}

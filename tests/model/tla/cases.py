"""Every configuration: which module, with which constants, and what TLC must find.

A configuration that must fail names the invariant or property that its counterexample breaks.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    module: str
    name: str
    constants: dict
    invariants: tuple
    properties: tuple = ()
    breaks: str = ""
    specification: str = "Spec"
    symmetry: str = ""

    @property
    def expected(self):
        return f"violates {self.breaks}" if self.breaks else "holds"

    def configuration(self):
        lines = [f"SPECIFICATION {self.specification}", "CONSTANTS"]
        lines += [f"  {name} = {value}" for name, value in self.constants.items()]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        lines += [f"PROPERTY {name}" for name in self.properties]
        lines += [f"SYMMETRY {self.symmetry}"] if self.symmetry else []
        return "\n".join(lines) + "\n"


def quoted(words):
    return f'"{words}"'


# Symmetry is never used where liveness is checked: TLC would answer wrongly.

LEASE = {"Workers": "{w1, w2}", "T": 2, "M": 1, "L": 3, "MaxAttempts": 1, "MaxCrashes": 2,
         "Faults": 1, "Freezes": "FALSE", "Restarts": "FALSE", "HB": 1, "D": 1, "Timely": "FALSE",
         "Flaw": quoted("none")}
LEASE_SAFE = ("OneLiveBody", "NoStaleResult", "TerminalOnce", "Bounded")


def lease(name, breaks="", invariants=LEASE_SAFE, **constants):
    return Case("Lease", name, {**LEASE, **constants}, invariants, breaks=breaks, symmetry="Alike")


def lease_live(name, breaks="", **constants):
    constants = {**LEASE, "T": 3, "L": 4, "Restarts": "TRUE", "Timely": "TRUE", **constants}
    return Case("Lease", name, constants, LEASE_SAFE, ("EventuallyTerminal",), breaks, "Live")


LEASE_CASES = [
    lease("as built"),
    lease("frozen for long: the fence still holds", Freezes="TRUE",
          invariants=("NoStaleResult", "TerminalOnce", "Bounded")),
    lease_live("as built, and fair"),
    lease("frozen for longer than M", "OneLiveBody", Freezes="TRUE"),
    lease("T counted from the answer", "OneLiveBody", Flaw=quoted("counted from the answer")),
    lease("T > L", "OneLiveBody", T=4),
    lease("ended by the wall clock, which is stepped", "OneLiveBody",
          Flaw=quoted("ended by the wall clock")),
    lease("ended without a second look at the beat", "OneLiveBody",
          Flaw=quoted("ended without a second look")),
    lease("a lease given back while its answer can still begin", "OneLiveBody",
          Flaw=quoted("given back, yet begun")),
    lease("a process registers anew beside a body that runs on", "OneLiveBody",
          Flaw=quoted("registered anew beside a body")),
    lease("no fence in set_results", "NoStaleResult", Flaw=quoted("no fence")),
    lease("no status in set_results", "TerminalOnce", Flaw=quoted("no status in the guard")),
    lease_live("no deadline for an attempt", "EventuallyTerminal", Flaw=quoted("no deadline")),
]


FAILOVER = {"Workers": "{w1}", "Copies": "{c1, c2}", "Claims": 3, "Beats": 0, "Replacements": 1,
            "Kinds": '{"failover"}', "AllBeatFirst": "FALSE", "Step": 10,
            "Raise": quoted("by a step"), "Flaw": quoted("none")}


def failover(name, breaks="", invariants=("NoStaleResult",), **constants):
    return Case("Failover", name, {**FAILOVER, **constants}, invariants, breaks=breaks)


def restore(name, kinds, breaks="", invariants=("NoStaleResult", "OneLiveBody"), flaw="none",
            **constants):
    kinds = "{" + ", ".join(quoted(kind) for kind in kinds) + "}"
    constants = {"Workers": "{w1, w2}", "Copies": "{c1}", "Claims": 2, "Beats": 1,
                 "Raise": quoted("past the clock"), "Flaw": quoted(flaw), "Kinds": kinds,
                 **constants}
    return failover(name, breaks, invariants, **constants)


FAILOVER_CASES = [
    failover("one failover, as built"),
    failover("two failovers, past the clock", Replacements=2, Raise=quoted("past the clock")),
    failover("no raise of the fences", "NoStaleResult", Raise=quoted("not at all")),
    failover("two failovers, the second to a standby that lacks the first raise",
             "NoStaleResult", Replacements=2),
    restore("a limit: the body of a lost claim lives on", ["failover"], "OneLiveBody"),
    restore("a restored dump, as built", ["dump"]),
    restore("a cold copy put back, as built: results", ["cold"], invariants=("NoStaleResult",)),
    restore("a cold copy put back, and each worker beats first", ["cold"], AllBeatFirst="TRUE"),
    restore("two replacements of any kind", ["failover", "dump", "cold"], Replacements=2,
            Workers="{w1}", Beats=0, invariants=("NoStaleResult",)),
    restore("no raise on a clean restart", ["cold"], "NoStaleResult", ("NoStaleResult",),
            flaw="no raise on a clean restart"),
    restore("the row of the incarnation is copied and believed", ["dump"], "NoStaleResult",
            ("NoStaleResult",), flaw="the copied row is believed"),
    restore("a heartbeat without acknowledged beats", ["cold"], "OneLiveBody", AllBeatFirst="TRUE",
            flaw="beats are not counted"),
    restore("claims from a restored dump do not wait", ["dump"], "OneLiveBody",
            flaw="claims do not wait"),
    restore("a limit: a cold copy, and a worker claims before another has beaten", ["cold"],
            "OneLiveBody"),
]


QUEUES = {"Tasks": "{t1, t2}", "Later": "{t2}", "Crashes": 2, "Deaths": 1, "Releases": 1,
          "Flaw": quoted("none")}
QUEUES_SAFE = ("FoundAgain", "NeverClaimedTwice")


def queues(name, breaks="", flaw="none", invariants=QUEUES_SAFE, properties=()):
    specification = "Live" if properties else "Spec"
    return Case("Queues", name, {**QUEUES, "Flaw": quoted(flaw)}, invariants, properties, breaks,
                specification)


QUEUES_CASES = [
    queues("as built", properties=("EventuallyClaimed",)),
    queues("claims do not wait, and nobody rebuilds", "EventuallyClaimed", "no rebuild",
           properties=("EventuallyClaimed",)),
    queues("boot marked before the queues are filled", "FoundAgain",
           "boot marked, queues not filled"),
    queues("no status in take: a second queue row is a second claim", "NeverClaimedTwice",
           "no status in take"),
]


MARK = {"Inserters": "{i1, i2, i3}", "Aborts": 0, "Sweep": "FALSE", "Rule": quoted("snapshot")}


def mark(name, breaks="", invariants=("NothingInvented",), properties=("EverythingClaimed",),
         **constants):
    return Case("Mark", name, {**MARK, **constants}, invariants, properties, breaks)


MARK_CASES = [
    mark("as built, even without its sweep", invariants=("NothingInvented", "NothingPassed")),
    mark("as built, with claims that roll back, even without its sweep", Aborts=2,
         invariants=("NothingInvented", "NothingPassed")),
    mark("a cursor with a sweep: late, not lost", Inserters="{i1, i2}", Sweep="TRUE",
         Rule=quoted("cursor")),
    mark("a cursor: id > last", "EverythingClaimed", Rule=quoted("cursor")),
    mark("the first number is that of the first row taken", "EverythingClaimed", Aborts=2,
         Rule=quoted("taken")),
    mark("a number is drawn before the transaction has its own", "EverythingClaimed",
         Rule=quoted("drawn early")),
]


WAKE = {"Controllers": "{c1, c2}", "Strangers": "{}", "Inserters": "{i1, i2}",
        "Poll": "FALSE", "Losses": 0, "Deaths": 0, "Fills": 1, "Flaw": quoted("none")}


def wake(name, breaks="", invariants=("OneOwner", "Counted"), properties=("EventuallyClaimed",),
         **constants):
    return Case("Wake", name, {**WAKE, **constants}, invariants, properties, breaks)


WAKE_CASES = [
    wake("as built, even without its poll",
         invariants=("OneOwner", "Counted", "NobodySleepsPast")),
    wake("as built, with losses and a death", Poll="TRUE", Losses=2, Deaths=1),
    wake("looks before it locks, with the poll: late, not lost", Poll="TRUE",
         Flaw=quoted("looks before it locks")),
    wake("looks before it locks, no poll", "EventuallyClaimed",
         Flaw=quoted("looks before it locks")),
    wake("a watch that is busy keeps its lock", "NobodySleepsPast",
         invariants=("NobodySleepsPast",), Flaw=quoted("a busy watch stays")),
    wake("who stands by does not ask for the lock", "NobodySleepsPast",
         invariants=("NobodySleepsPast",), Flaw=quoted("standby is deaf")),
    wake("a stream is neither watched nor polled", "NobodySleepsPast",
         invariants=("NobodySleepsPast",), Flaw=quoted("a stream is not polled")),
    wake("a stranger shares the bell, even without the poll", Strangers="{c2}",
         invariants=("OneOwner", "Counted", "NobodySleepsPast")),
    wake("a stranger beside two that serve the queue", Controllers="{c1, c2, c3}",
         Strangers="{c3}", Inserters="{i1}",
         invariants=("OneOwner", "Counted", "NobodySleepsPast")),
    wake("a bell that a stranger may keep is trusted", "NobodySleepsPast",
         invariants=("NobodySleepsPast",), Strangers="{c2}",
         Flaw=quoted("a shared bell is trusted")),
    wake("NOTIFY only: a notification is lost", "EventuallyClaimed", Losses=1),
    wake("NOTIFY only: the owner of the lock dies", "EventuallyClaimed", Deaths=1),
]


def locks(name, breaks="", flaw="none"):
    return Case("LockOrder", name, {"Sessions": "{s1, s2, s3}", "Flaw": quoted(flaw)},
                ("OneHolder", "NoDeadlock"), breaks=breaks, symmetry="Alike")


LOCKS_CASES = [
    locks("as built"),
    locks("set_results locks in any order", "NoDeadlock", "set_results unordered"),
    locks("rescue waits for locked rows", "NoDeadlock", "rescue waits"),
    locks("enqueue_due waits for tasks, and cancel for timers", "NoDeadlock",
          "enqueue_due and cancel wait"),
    locks("claim without lock_timeout, inside exchange", "NoDeadlock", "claim waits for ever"),
]

CASES = LEASE_CASES + FAILOVER_CASES + QUEUES_CASES + MARK_CASES + WAKE_CASES + LOCKS_CASES

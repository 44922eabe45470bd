------------------------------ MODULE Failover ------------------------------
(* The store goes back to an earlier state: a failover to an asynchronous   *)
(* standby, or a copy that takes the database's place. Workers live on with *)
(* fences, numbers and bodies of the lost future. May their results count   *)
(* for attempts of the new present? Do their bodies stop in time?           *)
(*                                                                          *)
(* Step stands for the product's 1,000,000,000: larger than any number of   *)
(* claims that a copy can lack. An attempt is known here by a number of its *)
(* own, which no rollback takes back; the product has its fence alone.      *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Workers,
  Copies,       \* standbys, dumps, copies of the data directory: each lags behind as it likes
  Claims,       \* how many claims there are in all
  Beats,        \* how many heartbeats a registration has, besides those that connections begin with
  Replacements, \* how many failovers and restores
  Kinds,        \* which: "failover", "dump" (into a new database), "cold" (taken at a clean stop)
  AllBeatFirst, \* whether every worker has beaten before anybody claims after a replacement
  Step,         \* what a raise by a step adds to the fence sequence
  Raise,        \* "past the clock" as rebuild_queues does, "by a step", or "not at all"
  Flaw          \* what is missing; "none" as built

VARIABLES
  store,     \* the primary: what a copy takes along
  life, oid, \* the start of the server and the database's oid: no copy takes these along
  copy,      \* what each copy has, and whether the server was stopped for it
  current,   \* the attempt that the row really stands for (0: none)
  results,   \* results of bodies, under way for as long as they like
  bodies,    \* attempts whose bodies run
  acked,     \* of each worker: its number, and how many heartbeats were acknowledged to it
  heard,     \* workers whose connections began with a heartbeat that was acknowledged
  claimed,   \* claims so far
  numbers,   \* registrations so far: executor numbers are raised as the fences are
  replaced,  \* replacements so far
  highest,   \* the clock's part: nothing that was ever given out is above it
  stale      \* remembers: a result was applied to an attempt that was not its own

vars == <<store, life, oid, copy, current, results, bodies, acked, heard, claimed, numbers,
          replaced, highest, stale>>

Max(a, b) == IF a > b THEN a ELSE b

Init ==
  /\ store = [sequence |-> 0, status |-> "enqueued", fence |-> 0, attempt |-> 0,
              complete |-> TRUE, row |-> <<1, 1>>, waits |-> FALSE, alive |-> Workers,
              known |-> [w \in Workers |-> [number |-> 0, beats |-> 0]]]
  /\ life = 1 /\ oid = 1
  /\ copy = [c \in Copies |-> [state |-> store, stopped |-> FALSE]]
  /\ current = 0
  /\ results = {}
  /\ bodies = {}
  /\ acked = [w \in Workers |-> [number |-> 0, beats |-> 0]]
  /\ heard = Workers
  /\ claimed = 0
  /\ numbers = 0
  /\ replaced = 0
  /\ highest = 0
  /\ stale = FALSE

(* The view tuskline_core.verified_incarnation: the queue rows are there, and this life of   *)
(* this database has written the row.                                       *)
Verified ==
  /\ store.complete
  /\ CASE Flaw = "the copied row is believed" -> TRUE
       [] Flaw = "no raise on a clean restart" -> store.row[2] = oid
       [] OTHER -> store.row = <<life, oid>>

(* A standby receives, a dump or a base backup is taken.                    *)
Copy(c) ==
  /\ copy' = [copy EXCEPT ![c] = [state |-> store, stopped |-> FALSE]]
  /\ UNCHANGED <<store, life, oid, current, results, bodies, acked, heard, claimed, numbers,
                 replaced, highest, stale>>

(* A clean stop, a copy of the data directory, a start. Each connection     *)
(* that is made again begins with a heartbeat.                              *)
StopAndCopy(c) ==
  /\ "cold" \in Kinds /\ life = 1
  /\ copy' = [copy EXCEPT ![c] = [state |-> store, stopped |-> TRUE]]
  /\ life' = life + 1
  /\ heard' = {}
  /\ UNCHANGED <<store, oid, current, results, bodies, acked, claimed, numbers, replaced, highest,
                 stale>>

(* tuskline.claim: refuses while nothing is verified, waits in a copy.      *)
Claim(w) ==
  /\ Verified /\ ~store.waits /\ w \in heard \cap store.alive
  /\ ~AllBeatFirst \/ heard = Workers
  /\ store.status = "enqueued" /\ claimed < Claims
  /\ claimed' = claimed + 1
  /\ store' = [store EXCEPT !.sequence = @ + 1, !.fence = store.sequence + 1,
                            !.status = "held", !.attempt = claimed + 1]
  /\ current' = claimed + 1
  /\ bodies' = bodies \cup
       {[attempt |-> claimed + 1, fence |-> store.sequence + 1, worker |-> w]}
  /\ highest' = Max(highest, store.sequence + 1)
  /\ UNCHANGED <<life, oid, copy, results, acked, heard, numbers, replaced, stale>>

(* A body ends, here or in the lost future, and its result sets out.        *)
Finish(b) ==
  /\ b \in bodies
  /\ bodies' = bodies \ {b}
  /\ results' = results \cup {[attempt |-> b.attempt, fence |-> b.fence]}
  /\ UNCHANGED <<store, life, oid, copy, current, acked, heard, claimed, numbers, replaced,
                 highest, stale>>

(* tuskline.set_results *)
SetResult(r) ==
  /\ r \in results
  /\ results' = results \ {r}
  /\ IF store.status = "held" /\ store.fence = r.fence
     THEN /\ store' = [store EXCEPT !.status = "success"]
          /\ stale' = (stale \/ r.attempt # current)
     ELSE UNCHANGED <<store, stale>>
  /\ UNCHANGED <<life, oid, copy, current, bodies, acked, heard, claimed, numbers, replaced,
                 highest>>

(* tuskline.rescue: the body has ended before, which is what Lease is       *)
(* about. After a replacement the task may return while it runs.            *)
Rescue ==
  /\ store.status = "held"
  /\ store' = [store EXCEPT !.status = "enqueued"]
  /\ bodies' = {b \in bodies : b.attempt # current}
  /\ UNCHANGED <<life, oid, copy, current, results, acked, heard, claimed, numbers, replaced,
                 highest, stale>>

RescueOfTheEnded ==
  /\ store.status = "held"
  /\ \A b \in bodies : b.attempt = current =>
       \/ b.worker \notin store.alive
       \/ store.known[b.worker].number # acked[b.worker].number
  /\ store' = [store EXCEPT !.status = "enqueued"]
  /\ UNCHANGED <<life, oid, copy, current, results, bodies, acked, heard, claimed, numbers,
                 replaced, highest, stale>>

(* tuskline.heartbeat says how many were acknowledged before. A row that    *)
(* knows fewer, or another number, is of the past.                          *)
OfThePast(w) ==
  \/ store.known[w].number # acked[w].number
  \/ store.known[w].beats < acked[w].beats /\ Flaw # "beats are not counted"

Beat(w) ==
  /\ w \in store.alive /\ ~OfThePast(w)
  /\ acked[w].beats < Beats \/ w \notin heard
  /\ heard' = heard \cup {w}
  /\ acked' = [acked EXCEPT ![w].beats = @ + 1]
  /\ store' = [store EXCEPT !.known[w].beats = @ + 1]
  /\ UNCHANGED <<life, oid, copy, current, results, bodies, claimed, numbers, replaced, highest,
                 stale>>

(* Refused: the bodies stop, and the worker registers anew. Where the row   *)
(* was of the past, claims wait one lease.                                  *)
RegisterAnew(w) ==
  /\ w \notin store.alive \/ OfThePast(w)
  /\ Verified
  /\ numbers' = numbers + 1
  /\ acked' = [acked EXCEPT ![w] = [number |-> numbers + 1, beats |-> 0]]
  /\ store' = [store EXCEPT !.known[w] = [number |-> numbers + 1, beats |-> 0],
                            !.alive = @ \cup {w},
                            !.waits = @ \/ (w \in store.alive /\ OfThePast(w))]
  /\ bodies' = {b \in bodies : b.worker # w}
  /\ heard' = heard \cup {w}
  /\ UNCHANGED <<life, oid, copy, current, results, claimed, replaced, highest, stale>>

(* By now a worker was acknowledged, or it has stopped its bodies at T.     *)
LeasePasses ==
  /\ store.waits
  /\ store' = [store EXCEPT !.waits = FALSE]
  /\ bodies' = {b \in bodies : b.worker \in heard}
  /\ UNCHANGED <<life, oid, copy, current, results, acked, heard, claimed, numbers, replaced,
                 highest, stale>>

(* A copy takes the place, and every connection breaks. A promoted standby, *)
(* and a base backup, have no queue rows; a dump has what it was told; a    *)
(* cold copy differs in the start of the server alone.                      *)
Replace(c, kind) ==
  /\ replaced < Replacements /\ kind \in Kinds
  /\ kind = "cold" => copy[c].stopped
  /\ replaced' = replaced + 1
  /\ store' = IF kind = "failover" THEN [copy[c].state EXCEPT !.complete = FALSE]
              ELSE copy[c].state
  /\ current' = copy[c].state.attempt
  /\ life' = IF kind = "dump" THEN life ELSE life + 1
  /\ oid' = IF kind = "dump" THEN oid + 1 ELSE oid
  /\ heard' = {}
  /\ UNCHANGED <<copy, results, bodies, acked, claimed, numbers, highest, stale>>

(* tuskline.rebuild_queues *)
Raised ==
  CASE Raise = "not at all" -> store.sequence
    [] Raise = "by a step" -> store.sequence + Step
    [] Raise = "past the clock" -> Max(store.sequence, highest)  \* no copy takes time back

Rebuild ==
  /\ ~Verified
  /\ LET isCopy == store.row[2] # oid IN
     /\ store' = [store EXCEPT !.complete = TRUE, !.row = <<life, oid>>, !.sequence = Raised,
                 !.waits = @ \/ (isCopy /\ Flaw # "claims do not wait"),
                 !.alive = IF isCopy THEN {} ELSE @]
     /\ heard' = IF isCopy THEN {} ELSE heard
  /\ UNCHANGED <<life, oid, copy, current, results, bodies, acked, claimed, numbers, replaced,
                 highest, stale>>

Next ==
  \/ Rescue \/ RescueOfTheEnded \/ Rebuild \/ LeasePasses
  \/ \E w \in Workers : Claim(w) \/ Beat(w) \/ RegisterAnew(w)
  \/ \E c \in Copies : Copy(c) \/ StopAndCopy(c) \/ \E kind \in Kinds : Replace(c, kind)
  \/ \E b \in bodies : Finish(b)
  \/ \E r \in results : SetResult(r)

Spec == Init /\ [][Next]_vars

--------------------------------------------------------------------------
NoStaleResult == ~stale

(* Promised where the copy differs in more than the start of the server.    *)
(* After a failover that lost a claim it is made again while the body of    *)
(* the first still runs, until its worker's next heartbeat.                 *)
OneLiveBody == Cardinality(bodies) <= 1
=============================================================================
